package acl

import (
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
)

// ErrTooLarge is returned when a table exceeds the limits of VPP. The pods keep their rules. It is
// a renderer.Refusal, unless other owners may free resources at any moment: then it is retried.
var ErrTooLarge = entries.ErrTooLarge

// The reasons that are reported for rules that are not enforced exactly.
const (
	reasonSCTP   = "this vswitch does not match ports of SCTP"
	reasonACLs   = "an interface would need too many ACLs"
	reasonTable  = "the rules of a pod, with their sets expanded, are too many entries"
	reasonMemory = "the vswitch has not enough memory for the rules of a pod, with their sets expanded"
)

// embeddedVersion is the version prefix of the embedded vswitch, which matches SCTP ports.
// Everything else is treated as VPP, because the API does not report it. VPP parses only ports of
// TCP, UDP and ICMP, and takes every SCTP port for 0. There, a rule that permits some SCTP ports
// must permit none, and a rule that denies some must deny all.
const embeddedVersion = "sluice-vswitch "

// isEmbedded reports whether a version is that of the embedded vswitch.
func isEmbedded(version string) bool { return strings.HasPrefix(version, embeddedVersion) }

func namesSCTPPort(r *api.ContivRule) bool {
	return r.Protocol == api.SCTP && (!r.SrcPort.IsAny() || !r.DstPort.IsAny())
}

// refusals are the tables that do not fit.
type refusals struct {
	errs     []error
	oversize []renderer.Unenforced    // rules of the refused tables
	tooBig   map[renderer.Digest]bool // refused tables
	lacking  int                      // number of tables, and of parts of one, that are refused for lack of memory
	needed   uint64                   // bytes at the worst moment if nothing were refused
}

// add records that the rules of a table do not fit.
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

// bounds limit the work of one step and the size of ACLs.
type bounds struct {
	layout.Sizes
	// sharers is the number of interfaces that share the ACLs of a large table.
	sharers int
	// pause is the number of entries that VPP may remove from its interfaces and add again in one
	// call.
	pause int
	// statistics is the size of VPP's statistics segment in bytes, or VPP's default while it is
	// unknown.
	statistics int
	guard      expand.GuardSizes
}

func defaultBounds() bounds {
	return bounds{Sizes: layout.DefaultSizes(), sharers: 5, pause: 20_000, statistics: 32 << 20, guard: expand.GuardSizes{Entries: 256, Peers: 1024, Blocks: 128}}
}
