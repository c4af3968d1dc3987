package compile

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Budget limits how many lines lists may take, the addresses that they name included. Zero means no
// limit.
type Budget struct {
	Lines int // of all owners together
	Share int // of one owner
}

// Closed denies everything. It replaces a refused list.
var Closed = renderer.NewRuleList([]api.ContivRule{{}}, nil)

// budget tracks the use of a Budget by owners while a plan is made.
//
// If an owner takes more than its share, each of its lists may take an equal part of the share, and
// larger lists are refused. While all owners together take too much, the share is halved, so that
// the largest owners are limited first. The result depends on the desired lists only: a list is
// refused as soon as it is known to exceed its limit, whatever its full size would be.
type budget struct {
	Budget
	accounts map[*account]bool // of all lists, refused ones included
	free     func()            // frees classes that no address has any more
	share    int               // of an owner in this plan
	owners   map[string]*owner
	taken    int  // lines taken by lists since the last settle
	swept    bool // the costs include no classes that no address has any more
	early    bool // rows are not counted yet
	begun    bool // owners has the owners of this build
}

func (b *budget) isSet() bool { return b.Budget != Budget{} }

// begin starts with no owners.
func (b *budget) begin() {
	b.share, b.taken, b.swept, b.begun, b.owners = b.Share, 0, false, true, map[string]*owner{}
	for a := range b.accounts {
		a.owners, a.replaced = a.owners[:0], false
		if a.reach = 0; a.erase == nil {
			a.stopped = false
		}
	}
}

// own adds a list to an owner.
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

// check settles the budget if lists took more than a part of it since the last time. With idle, no
// class is being added, so that classes may be swept.
func (b *budget) check(part int, idle bool) {
	if !b.isSet() || b.taken <= max(b.Lines, b.Share)/part {
		return
	}
	if idle {
		b.sweep(1)
	}
	b.settle()
}

// settle stops the lists that exceed their limit.
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

// sweep frees classes that no address has any more if owners take more than a part of their limit.
// It must not be called while a class is being added.
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

// over counts the lines of owners, and reports whether these exceed a part of their limit.
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

// wanted returns how many lines all lists take that are not stopped.
func (b *budget) wanted() (lines int) {
	for a := range b.accounts {
		if !a.stopped && !a.replaced {
			lines += a.cost(b.early)
		}
	}
	return lines
}

// stop stops the lists that are refused to all of their owners.
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
