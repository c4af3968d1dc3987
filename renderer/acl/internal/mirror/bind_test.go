package mirror

import (
	"slices"
	"testing"
)

func TestExchangeChangesOnlyOutputLists(t *testing.T) {
	in := []uint32{1}
	for name, c := range map[string]struct {
		from, to       []uint32
		added, removed []uint32
		ok             bool
	}{
		"a table for a table": {[]uint32{9, 2, 3}, []uint32{9, 2, 4, 5}, []uint32{5, 4}, []uint32{3}, true},
		"one for four":        {[]uint32{9, 2}, []uint32{9, 3, 4, 5, 6}, []uint32{4, 5, 6, 3}, []uint32{2}, true},
		"four for one":        {[]uint32{9, 3, 4, 5, 6}, []uint32{9, 2}, []uint32{2}, []uint32{3, 6, 5, 4}, true},
		"two for two":         {[]uint32{9, 2, 3}, []uint32{9, 4, 5}, nil, nil, false},
		"some are kept":       {[]uint32{2, 4, 3}, []uint32{2, 4, 5}, []uint32{5}, []uint32{3}, true},
		"one goes in front of another that is kept": {[]uint32{2, 3, 4}, []uint32{2, 4, 5}, nil, nil, false},
		"all are new":               {[]uint32{3}, []uint32{4}, []uint32{4}, []uint32{3}, true},
		"one in the middle":         {[]uint32{2, 3}, []uint32{2, 4, 3}, []uint32{4}, nil, false},
		"another order":             {[]uint32{2, 3}, []uint32{3, 2}, nil, nil, false},
		"open before":               {nil, []uint32{3}, nil, nil, false},
		"open afterwards":           {[]uint32{3}, nil, nil, nil, false},
		"too many for a moment":     {[]uint32{2}, numbers(3, 257), nil, nil, false},
		"as many as there may be":   {[]uint32{2}, numbers(3, 256), append(numbers(4, 256), 3), []uint32{2}, true},
		"others stand behind":       {[]uint32{2, 3, 9}, []uint32{9, 2, 3}, nil, nil, false},
		"theirs in front, ours new": {[]uint32{9, 2}, []uint32{9, 3}, []uint32{3}, []uint32{2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			added, removed, ok := Lists{in, c.from}.Exchange(Lists{in, c.to})
			if ok != c.ok || ok && (!slices.Equal(added, c.added) || !slices.Equal(removed, c.removed)) {
				t.Errorf("added %v, removed %v, %v", added, removed, ok)
			}
		})
	}
	if _, _, ok := (Lists{in, []uint32{2}}).Exchange(Lists{[]uint32{7}, []uint32{3}}); ok {
		t.Error("another input list is taken for the same")
	}
}

func numbers(from, to uint32) (out []uint32) {
	for ; from < to; from++ {
		out = append(out, from)
	}
	return out
}
