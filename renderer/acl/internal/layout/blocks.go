package layout

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// block is a maximal run of entries with one verdict, first..last-1. Order within it does not
// matter. The verdict is that of a whole block.
type block struct {
	first, last int
	verdict     entries.Verdict
}

func (b block) size() int { return b.last - b.first }

// blocksOf divides the entries of a table into blocks.
func blocksOf(list []entries.Entry) []block {
	var out []block
	for i := range list {
		if i == 0 || list[i].Verdict != list[i-1].Verdict {
			out = append(out, block{i, i, list[i].Verdict})
		}
		out[len(out)-1].last++
	}
	return out
}

// cell is a part of a slot: the ACLs first..last-1. It is either a group, which holds one block in
// segments by age, or the ACLs between two groups.
type cell struct {
	first, last int
	isGroup     bool
	verdict     entries.Verdict // of a group
}

// cellsOf derives the cells from the roles of the ACLs of a slot. It returns false when they are
// incomplete.
func cellsOf(roles []Role) ([]cell, bool) {
	var out []cell
	for n, r := range roles {
		open := len(out) > 0 && out[len(out)-1].isGroup && roles[n-1].Kind != Young
		switch {
		case open && (r.Kind < roles[n-1].Kind || r.Verdict != out[len(out)-1].verdict):
			return nil, false // the order is cold... warm recent
		case open, r.Kind == Mixed && len(out) > 0 && !out[len(out)-1].isGroup:
			out[len(out)-1].last++
		default:
			out = append(out, cell{n, n + 1, r.isSegment(), r.Verdict})
		}
	}
	for _, c := range out {
		if c.isGroup && (c.last-c.first < 2 || roles[c.last-1].Kind != Young || roles[c.last-2].Kind != Warm) {
			return nil, false
		}
	}
	return out, true
}

// divide assigns the entries of a table to the cells of a slot. Every group takes a block of its
// verdict, such that groups hold as many entries as possible; the cells between take the blocks
// between. The result depends only on the cells and the table. It returns false when some entries
// have no cell.
func divide(cells []cell, blocks []block) ([]block, bool) {
	groups, size := 0, 0
	for _, c := range cells {
		if c.isGroup {
			groups++
		}
	}
	if n := len(blocks); n > 0 {
		size = blocks[n-1].last
	}
	chosen := choose(cells, groups, blocks)
	out := make([]block, len(cells))
	at, group := 0, 0
	for n, c := range cells {
		out[n] = block{first: at, last: at}
		if c.isGroup {
			if chosen[group] >= 0 {
				if b := blocks[chosen[group]]; b.first != at {
					return nil, false // there is no cell in between
				} else {
					out[n] = b
				}
			}
			at = out[n].last
			group++
			continue
		}
		for next := group; ; next++ {
			if next == groups {
				if n == len(cells)-1 { // it takes the rest: no block behind it could go to a group
					at = size
				}
			} else if chosen[next] >= 0 {
				at = blocks[chosen[next]].first
			} else {
				continue // a group without a block is empty
			}
			break
		}
		out[n].last = at
	}
	return out, at == size
}

// choose returns the block of every group, in order, or -1 for none, such that groups hold as many
// entries as possible. Of several solutions it returns the one whose groups take the last blocks.
func choose(cells []cell, groups int, blocks []block) []int {
	// best[g][b] is the number of entries that the groups from g on can hold of the blocks from b
	// on.
	best := make([][]int, groups+1)
	for g := range best {
		best[g] = make([]int, len(blocks)+1)
	}
	verdicts := make([]entries.Verdict, 0, groups)
	for _, c := range cells {
		if c.isGroup {
			verdicts = append(verdicts, c.verdict)
		}
	}
	takes := func(g, b int) int {
		if blocks[b].verdict != verdicts[g] {
			return -1
		}
		return blocks[b].size() + best[g+1][b+1]
	}
	for g := groups - 1; g >= 0; g-- {
		best[g][len(blocks)] = best[g+1][len(blocks)]
		for b := len(blocks) - 1; b >= 0; b-- {
			best[g][b] = max(best[g+1][b], best[g][b+1], takes(g, b))
		}
	}
	out := make([]int, groups)
	for g, b := 0, 0; g < groups; g++ {
		out[g] = -1
		for ; b < len(blocks) && best[g][b] > best[g+1][b]; b++ {
			if best[g][b] > best[g][b+1] {
				out[g] = b
				b++
				break
			}
		}
	}
	return out
}

// spread splits the content of a cell between groups into its ACLs at the previous cuts: an ACL
// begins with the first entry that it still holds. It returns the end of each ACL.
func spread(old []entries.Piece, want []entries.Entry) []int {
	ends := make([]int, len(old))
	if len(old) > 1 {
		at := make(map[entries.Entry]int, len(want))
		for i, e := range slices.Backward(want) {
			at[e] = i
		}
		for n := len(old) - 1; n > 0; n-- {
			ends[n-1] = -1
			for _, e := range old[n].Entries {
				if i, ok := at[e]; ok {
					ends[n-1] = i
					break
				}
			}
		}
	}
	ends[len(old)-1] = len(want)
	for n := len(old) - 2; n >= 0; n-- { // ACLs that keep nothing, or that are out of order, become empty
		if ends[n] < 0 || ends[n] > ends[n+1] {
			ends[n] = ends[n+1]
		}
	}
	return ends
}
