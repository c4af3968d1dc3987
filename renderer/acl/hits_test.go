package acl

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/cache"
)

func TestHitsOfARuleAreThoseOfItsEntries(t *testing.T) {
	counted := map[uint32][]uint64{7: {1, 2, 4}, 9: {8, 16, 32}}
	count := counters(func(acl uint32) ([]uint64, bool) {
		hits, ok := counted[acl]
		return hits, ok
	})
	table := &cache.Table{Rules: make([]api.ContivRule, 3)}
	slots := []*slot{
		nil,
		{indexes: []uint32{7, 9}, want: []piece{{rules: []int32{0, 0, 1}}, {rules: []int32{1, 2}}}},
		{indexes: []uint32{11}, want: []piece{{rules: []int32{2}}}}, // gone
		{indexes: []uint32{9}},
	}
	if got := count.hitsOf(table, slots); !slices.Equal(got, []uint64{3, 12, 16}) {
		t.Errorf("hits are %v", got)
	}
	if got := counters(nil).hitsOf(table, slots); got != nil {
		t.Errorf("hits are %v, nobody counts", got)
	}
}
