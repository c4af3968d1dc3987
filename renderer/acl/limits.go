package acl

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
)

// ErrTooLarge is returned when a table is larger than VPP can be asked to hold. The pods keep the
// rules they have. It is a renderer.Refusal, unless others may make room at any moment: then the
// commit is tried again.
var ErrTooLarge = entries.ErrTooLarge

// The reasons that are told of rules that are not enforced as they are.
const (
	reasonSCTP  = "this vswitch does not match ports of SCTP"
	reasonACLs  = "an interface would need too many ACLs"
	reasonTable = "the rules of a pod, with their sets expanded, are too many entries"

	reasonMemory = "the vswitch has not enough memory for the rules of a pod, with their sets expanded"
)

// embeddedVersion is how the version of the embedded vswitch begins, which matches
// ports of SCTP. VPP parses those of TCP, UDP and ICMP only, so a rule with another
// port than any never matches there. What calls itself otherwise is taken for VPP:
// its API does not tell. There, what permits some ports of SCTP must permit none, for
// VPP takes every port for 0; and what denies some must deny all.
const embeddedVersion = "sluice-vswitch "

// isEmbedded reports whether a version is that of the embedded vswitch.
func isEmbedded(version string) bool { return strings.HasPrefix(version, embeddedVersion) }

func namesSCTPPort(r api.ContivRule) bool {
	return r.Protocol == api.SCTP && (!r.SrcPort.IsAny() || !r.DstPort.IsAny())
}

// Unenforced implements renderer.Reporter.
func (r *reader) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }

// refusals are what does not fit.
type refusals struct {
	errs     []error
	oversize []renderer.Unenforced    // of which rules tables are refused
	tooBig   map[renderer.Digest]bool // tables that are refused
	lacking  int                      // tables, and parts of one, that are refused for want of memory
	needed   uint64                   // bytes at the worst moment, if nothing is refused
}

// add notes that the rules of one table do not fit.
func (f *refusals) add(err error, reason string, origins [][]api.Origin, pods int) {
	f.errs = append(f.errs, err)
	seen := map[api.Origin]bool{}
	for _, of := range origins {
		for _, o := range of {
			if seen[o] {
				continue
			}
			seen[o] = true
			f.oversize = append(f.oversize, renderer.Unenforced{
				Origin: o, Class: api.ClassLimit, Reason: reason, Effect: renderer.EffectPrevious, Pods: pods,
			})
		}
	}
}

// bounds are what is done at once at most, and how large ACLs become.
type bounds struct {
	layout.Sizes
	// sharers is how many interfaces have the ACLs of a large table together.
	sharers int
	// pause is how many entries VPP may take off its interfaces in one call, and put there again.
	pause int
	// statistics is the size of VPP's statistics segment in bytes; VPP's default as long as it is
	// not known.
	statistics int
	// turns is for how long a commit begins with changes that take long.
	turns time.Duration
	guard expand.GuardSizes
}

func defaultBounds() bounds {
	return bounds{Sizes: layout.DefaultSizes(), sharers: 5, pause: 20_000, statistics: 32 << 20, turns: maxTurns,
		guard: expand.GuardSizes{Entries: 256, Peers: 1024, Blocks: 128}}
}

// isDueAt reports whether a quiet moment is to be used to make room in a slot.
func (b *bounds) isDueAt(s *slot) bool {
	if s.name == youngSlot {
		return slices.ContainsFunc(s.want, b.IsDueGlobally)
	}
	return b.IsDue(layout.Content{Pieces: s.want, Roles: s.roles})
}
