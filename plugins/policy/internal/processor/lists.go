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
	stale       bool   // a named port that it uses has other numbers
	watched     bool   // it has or had named ports, or a set without an ID: it may have problems
	version     uint64 // of what resolutions are made from
	resolutions map[string]*resolution
	// perPort has, for the named ports of egress rules, the selectors of the peers.
	perPort map[portName][]*membership.Selector
}

// usesRefused reports whether a set that the policy needs has no ID of its own.
func (st *policyState) usesRefused() bool {
	for _, r := range st.resolutions {
		if r.usesRefused() {
			return true
		}
	}
	return false
}

// resolution is a policy as it applies to groups whose named ports mean the same.
// It stays the same object, and so does its policy while the content is equal.
type resolution struct {
	state   *policyState
	key     string
	version uint64
	id      uint64            // of the content: another policy, another id
	policy  *api.ContivPolicy // immutable
	uses    []*membership.Selector
	lists   int // that hold it
}

func (r *resolution) usesRefused() bool {
	return slices.ContainsFunc(r.uses, (*membership.Selector).Refused)
}

// policyList is a sequence of policies; there is one for every sequence.
type policyList struct {
	key         string
	policies    []*api.ContivPolicy // immutable, sorted by ID
	resolutions []*resolution
	groups      int // that have it
}

func (l *policyList) contivPolicies() []*api.ContivPolicy {
	if l == nil {
		return nil
	}
	return l.policies
}
