//! What firmware asks of the network at power-on: DHCP, proxyDHCP, TFTP, HTTP boot, iPXE scripts.
pub mod director;
