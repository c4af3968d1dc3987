package backends

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/lab/secgrouptest"
)

// secgroupBackend is the renderer of security groups over a Neutron in memory. Every address of a
// pod has a port.
type secgroupBackend struct{ *secgrouptest.Stack }

var (
	_ Backend = secgroupBackend{}
	_ Narrow  = secgroupBackend{}
)

func newSecgroup(prompt func()) (Backend, error) {
	s, err := secgrouptest.NewStack(secgroup.Options{DefaultGroups: []string{secgrouptest.Default}, MaxRules: maxRules, OnChange: prompt})
	return secgroupBackend{s}, err
}

// maxRules is enough for everything but the protocols that no policy can name, where policies
// permit all but some traffic: these are 250, with rules of their own each.
const maxRules = 1 << 14

// Narrows implements Narrow.
func (secgroupBackend) Narrows(f api.Flow) bool {
	return !f.Protocol.HasPorts() && f.Protocol != api.ICMP && f.Protocol != api.ICMPv6
}
