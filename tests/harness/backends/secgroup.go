package backends

import (
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/secgrouptest"
)

var _ Backend = (*secgrouptest.Stack)(nil)

// newSecgroup is the renderer of security groups over a Neutron in memory. Every address of a pod
// has a port. No number of rules is too large, so that verdicts are those of policies.
func newSecgroup(prompt func()) (Backend, error) {
	return secgrouptest.NewStack(secgroup.Options{DefaultGroups: []string{secgrouptest.Default}, MaxRules: 1 << 20, OnChange: prompt})
}
