package processor

import (
	"math"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// noBound is the turn of a Flush that is not divided.
const noBound = math.MaxInt / 4

// wait is what a local group waits for: the policies that applied to it when it began to wait, and
// whose new selectors are evaluated in several turns. It gets the list of these policies even if
// they change meanwhile, else policies that change all the time would never be in force. After that
// it waits for the newest ones, behind other groups.
type wait struct {
	parts    []part
	since    uint64 // number of the turn in which it began
	spent    int    // work done for it
	marked   uint64 // number of the turn in which the policies of the group last changed
	outdated bool   // other policies may apply to the group by now
}

// part is one policy of a wait.
type part struct {
	spec    *intent.Policy
	ingress [][]api.PolicyPort // the resolved ports of its ingress rules
	key     string             // of the resolution
	draft   *draft             // nil for a policy that is resolved already
}

// draftKey identifies a draft.
type draftKey struct {
	spec *intent.Policy
	key  string
}

// draft is a version of a policy whose selectors are evaluated for waiting groups.
type draft struct {
	done   bool
	passed int                    // number of selectors that were evaluated in earlier turns
	uses   []*membership.Selector // evaluated, and the one that is being evaluated
	held   int                    // number of uses that are retained
	needed uint64                 // number of the turn in which a group last waited for it
	// built is the complete policy; it is valid in this turn.
	built   *builder
	policy  *api.ContivPolicy
	builtIn uint64
	old     *resolution // of a version that is outdated; nil until needed
}
