package processor

import (
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// policyState is a policy that applies to local pods.
type policyState struct {
	spec        *intent.Policy
	stale       bool                   // the numbers of one of its named ports changed
	watched     bool                   // it has or had named ports or a refused set, or was refused, so it may have problems
	version     uint64                 // of the input of resolutions
	resolutions map[string]*resolution // by the numbers of named ports; ContivPolicies are compared by identity
	// perPort holds the selectors of the peers for each named port of egress rules.
	perPort map[portName][]*membership.Selector

	tenant  *tenant
	size    size
	counted int  // units that the tenant has counted for it
	touched bool // is in tenant.touched
	refused bool // by admission: it isolates, and permits nothing
}

// usesRefused reports whether the ID of a set that the policy needs is used by another set.
func (st *policyState) usesRefused() bool {
	for _, r := range st.resolutions {
		if r.usesRefused() {
			return true
		}
	}
	return false
}

// resolution is a policy as it applies to groups whose named ports resolve equally.
type resolution struct {
	state   *policyState
	key     string
	id      uint64
	ingress [][]api.PolicyPort // the resolved ports of ingress rules
	pairs   int                // of a peer and a port
	lists   int                // number of lists with it
	shared  int                // further lists of pods that share an address

	version  uint64            // of the state that policy was built from; 0: it must be built
	policy   *api.ContivPolicy // immutable; stays the same object while the content is equal
	uses     []*membership.Selector
	retained bool // uses are retained
}

func (r *resolution) usesRefused() bool {
	return slices.ContainsFunc(r.uses, (*membership.Selector).Refused)
}

// policyList is a sequence of policies; equal sequences are one object.
type policyList struct {
	key         string
	resolutions []*resolution       // sorted by the ID of their policies
	policies    []*api.ContivPolicy // immutable; those of the resolutions
	groups      int                 // number of groups that have it
}

func (l *policyList) contivPolicies() []*api.ContivPolicy {
	if l == nil {
		return nil
	}
	return l.policies
}

// assemble takes over what the policies became.
func (l *policyList) assemble() {
	if slices.EqualFunc(l.policies, l.resolutions, func(p *api.ContivPolicy, r *resolution) bool { return p == r.policy }) {
		return
	}
	l.policies = make([]*api.ContivPolicy, len(l.resolutions))
	for i, r := range l.resolutions {
		l.policies[i] = r.policy
	}
}

// sameList reports whether two lists are the same object.
func sameList(a, b []*api.ContivPolicy) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
