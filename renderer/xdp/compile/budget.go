package compile

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Budget bounds how many lines lists may take, the addresses that they name included. Zero values
// do not.
type Budget struct {
	Lines int // of all owners together
	Share int // of one owner
}

// Closed denies everything. It stands for a list that is refused.
var Closed = renderer.NewRuleList([]api.ContivRule{{}}, nil)

// budget is what owners take of a Budget, while a plan is made.
//
// An owner that takes more than its share may take an equal part of it with each of its lists;
// those that take more are refused. While all owners together take too much, the share is halved,
// so that the largest are the first. Both depend on what is wanted and on nothing else: a list is
// refused as soon as it is known to be larger than what it may be, however large it would become.
type budget struct {
	Budget
	accounts map[*account]bool // of all lists, also those that are refused
	free     func()            // frees what no address has any more
	share    int               // of an owner in this plan
	owners   map[string]*owner
	taken    int  // lines by lists since it was looked at
	swept    bool // nothing counts that no address has any more
	early    bool // rows do not count yet
	begun    bool // owners are those of what is being built
}

func (b *budget) isSet() bool { return b.Budget != Budget{} }

// begin begins with owners that have no lists.
func (b *budget) begin() {
	b.share, b.taken, b.swept, b.begun, b.owners = b.Share, 0, false, true, map[string]*owner{}
	for a := range b.accounts {
		a.owners = a.owners[:0]
		if a.reach = 0; a.erase == nil {
			a.stopped = false
		}
	}
}

// own has an owner have a list.
func (b *budget) own(name string, a *account) {
	o := b.owners[name]
	if o == nil {
		o = &owner{lists: map[*account]bool{}}
		b.owners[name] = o
	}
	if !o.lists[a] {
		o.lists[a] = true
		a.owners = append(a.owners, o)
	}
}

// check looks at the whole when lists took some part of what they may since it was looked at.
// With told, no class is being told.
func (b *budget) check(part int, told bool) {
	if !b.isSet() || b.taken <= max(b.Lines, b.Share)/part {
		return
	}
	if told {
		b.sweep(1)
	}
	b.settle()
}

// settle stops the lists that may not become as large as they are.
func (b *budget) settle() {
	b.taken = 0
	for b.over(1) {
		if b.stop(); b.Lines == 0 || b.wanted() <= b.Lines || b.share == 1 {
			return
		}
		if b.share == 0 || b.share > b.Lines {
			b.share = b.Lines
		}
		b.share = max(b.share/2, 1)
	}
}

// sweep frees what no address has any more, where it could be what makes lists too large. It must
// not be called while a class is told.
func (b *budget) sweep(part int) {
	if b.swept || !b.over(part) {
		return
	}
	b.swept = true
	b.free()
	for _, o := range b.owners {
		o.most = 0
	}
}

// over counts what owners take, and returns whether that is more than a part of what they may.
func (b *budget) over(part int) (over bool) {
	for _, o := range b.owners {
		lines := 0
		for a := range o.lists {
			lines += a.cost(b.early) / len(a.owners)
		}
		o.most = max(o.most, lines)
		o.over = b.share > 0 && o.most > b.share
		over = over || b.share > 0 && o.most > b.share/part
	}
	return over || b.Lines > 0 && b.wanted() > b.Lines/part
}

// wanted is how many lines all lists take that are not stopped.
func (b *budget) wanted() (lines int) {
	for a := range b.accounts {
		if !a.stopped {
			lines += a.cost(b.early)
		}
	}
	return lines
}

// stop stops lists that all of their owners are refused.
func (b *budget) stop() {
	for a := range b.accounts {
		if !a.stopped && b.refusedByAll(a) {
			a.stop()
		}
	}
}

// refusedByAll reports whether a list is refused to all of its owners.
func (b *budget) refusedByAll(a *account) bool {
	return len(a.owners) > 0 && !slices.ContainsFunc(a.owners, func(o *owner) bool { return !b.refuses(o, a) })
}

func (b *budget) refuses(o *owner, a *account) bool {
	return o.over && !a.exempt && a.cost(b.early) > o.quota(b.share)
}
