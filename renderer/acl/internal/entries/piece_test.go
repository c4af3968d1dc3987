package entries_test

import (
	"testing"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries/entriestest"
)

func TestCutChangesOnePieceForOneEntry(t *testing.T) {
	all := entries.Cut(entriestest.Many(60_000, -1), entries.MaxEntries)
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
		one := entries.Cut(entriestest.Many(60_000, skip), entries.MaxEntries)
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
	if small := entries.Cut(entriestest.Many(100, -1), entries.MaxEntries); len(small) != 1 {
		t.Errorf("a short table has %d pieces", len(small))
	}
}
