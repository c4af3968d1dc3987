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
	stale       bool   // the numbers of one of its named ports changed
	watched     bool   // it has or had named ports or a refused set, so it may have problems
	version     uint64 // of the input of resolutions
	resolutions map[string]*resolution
	// perPort holds the selectors of the peers for each named port of egress rules.
	perPort map[portName][]*membership.Selector
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

// resolution is a policy as it applies to groups whose named ports resolve equally. It stays the
// same object while the content is equal; other content is another object, because lists of pods
// that wait keep the old one.
type resolution struct {
	state   *policyState
	key     string
	version uint64
	id      uint64            // of the content: another policy has another id
	policy  *api.ContivPolicy // immutable
	uses    []*membership.Selector
	lists   int // number of lists with it; it may have been replaced in its state
}

func (r *resolution) usesRefused() bool {
	return slices.ContainsFunc(r.uses, (*membership.Selector).Refused)
}

// policyList is a sequence of policies; equal sequences are one object.
type policyList struct {
	key         string
	policies    []*api.ContivPolicy // immutable, sorted by ID
	resolutions []*resolution
	users       int // number of groups that have it and of pods that the sink has it for
}

func (l *policyList) contivPolicies() []*api.ContivPolicy {
	if l == nil {
		return nil
	}
	return l.policies
}
