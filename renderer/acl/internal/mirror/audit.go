package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// The kinds of drift.
const (
	DriftBinding = "binding" // an interface has other ACLs of ours, or in another order
	DriftContent = "content" // an ACL has other entries, or another tag
	DriftMissing = "missing" // an ACL is gone
)

// Drift is a change of our objects in the vswitch by another program.
type Drift struct{ Kind, What string }

// String describes the drift.
func (d Drift) String() string { return d.What }

// ContentAudit compares the content of ACLs with the mirror, a few ACLs at a time.
type ContentAudit struct {
	Next uint32 // first ACL of the next round
}

// Audit reads the next of our ACLs; it covers all in the given number of rounds. It reads each ACL
// with a call of its own, so that no call takes long.
func (x *ContentAudit) Audit(ctx context.Context, link *Link, m *Mirror, rounds int) (found []Drift, err error) {
	all := slices.Sorted(maps.Keys(m.ACLs))
	at, _ := slices.BinarySearch(all, x.Next)
	next := all[at:min(at+(len(all)+rounds-1)/rounds, len(all))]
	x.Next = 0
	if end := at + len(next); end < len(all) {
		x.Next = all[end]
	}
	for _, index := range next {
		h := m.ACLs[index]
		is, err := link.ReadACLs(ctx, index)
		switch {
		case err != nil:
			return nil, err
		case len(is) == 0:
			found = append(found, Drift{DriftMissing, fmt.Sprintf("acl %d %s is gone", index, h.Tag)})
		case is[0].Tag != h.Tag:
			found = append(found, Drift{DriftContent, fmt.Sprintf("acl %d has the tag %q instead of %s", index, is[0].Tag, h.Tag)})
		case entries.DigestOf(FromRules(is[0].R)) != h.Piece.Digest:
			found = append(found, Drift{DriftContent, fmt.Sprintf("acl %d %s has other entries (%d)", index, h.Tag, len(is[0].R))})
		}
	}
	return found, nil
}

// errNotRead is the error of a check of no mirror: there was no Apply yet, or the last one failed.
var errNotRead = errors.New("the content of vpp is unknown: it was not read since the last failure")

// Check reads interfaces and all of the renderer's ACLs, and reports what differs from the mirror,
// which it does not change. It returns how many interfaces and ACLs were read.
func (m *Mirror) Check(ctx context.Context) (objects int, drift []string, err error) {
	if m == nil {
		return 0, nil, errNotRead
	}
	now := *m // its interfaces are replaced, the rest is only read
	if err := now.ReadInterfaces(ctx); err != nil {
		return 0, nil, err
	}
	contents, err := (&ContentAudit{}).Audit(ctx, m.link, m, 1)
	if err != nil {
		return 0, nil, err
	}
	for _, d := range append(now.Rebound(m.Interfaces), contents...) {
		drift = append(drift, d.What)
	}
	return len(m.ACLs) + len(now.Interfaces), drift, nil
}
