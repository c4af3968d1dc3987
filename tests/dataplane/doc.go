// Package dataplane is the family of tests that send real packets through real dataplanes: the kernel,
// VPP, Open vSwitch by Neutron, the ligato vpp-agent. Most need root, or a VPP; whole programs are
// tested in tests/system.
package dataplane
