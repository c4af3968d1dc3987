package entries_test

import (
	"testing"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries/entriestest"
)

func TestCutChangesOnePieceForOneEntry(t *testing.T) {
	all := entries.Cut(entriestest.Many(60_000, -1))
	var total int
	for _, p := range all {
		if len(p.Entries) > entries.MaxEntries || p.Count != len(p.Rules) {
			t.Errorf("a piece has %d entries and %d rules", len(p.Entries), len(p.Rules))
		}
		total += p.Count
	}
	if total != 60_000 || len(all) < 4 {
		t.Fatalf("%d entries in %d pieces", total, len(all))
	}
	for _, skip := range []int{1, 30_000, 59_999} {
		one := entries.Cut(entriestest.Many(60_000, skip))
		differ := 0
		for i := range one {
			if i >= len(all) || one[i].Digest != all[i].Digest {
				differ++
			}
		}
		if len(one) != len(all) || differ != 1 {
			t.Errorf("without entry %d, %d of %d pieces differ, want 1 of %d", skip, differ, len(one), len(all))
		}
	}
	if small := entries.Cut(entriestest.Many(100, -1)); len(small) != 1 {
		t.Errorf("a short table has %d pieces", len(small))
	}
}

// TestShareIsOfEqualPieces: the rules are those of each table.
func TestShareIsOfEqualPieces(t *testing.T) {
	one := entries.Cut(entriestest.Many(100, -1))[0]
	equal, other := entries.Cut(entriestest.Many(100, -1))[0], entries.Cut(entriestest.Many(100, 3))[0]
	equal.Rules = []int32{7}
	first := entries.Share(one)
	same, different, none := entries.Share(equal), entries.Share(other), entries.Share(entries.NewPiece(nil, nil))
	switch {
	case &same.Entries[0] != &first.Entries[0] || len(same.Entries) != 100 || cap(same.Entries) != 100:
		t.Errorf("equal pieces have entries of their own, %d of %d", len(same.Entries), cap(same.Entries))
	case len(same.Rules) != 1 || same.Rules[0] != 7:
		t.Errorf("a piece got the rules %v", same.Rules)
	case entries.DigestOf(different.Entries) != other.Digest || none.Count != 0:
		t.Error("another piece got other entries")
	}
}
