package compile

// account is what a list costs, in lines, and whom.
type account struct {
	exempt  bool // never refused: it denies everything
	reach   int  // addresses that it names, as far as others do not
	spent   int  // what it takes
	before  int  // what it took when it was stopped
	stopped bool // it takes too many, and has no rows
	owners  []*owner
	erase   func() // gives back what is written; nil for a list that is refused, of which nothing is
}

// cost is how many lines a list takes, or took until it was stopped: one for each address that it
// names, as far as others do not, and its rows. How many pages there are depends on what was
// before. While early, rows of lists that are not refused do not count.
func (a *account) cost(early bool) int {
	if early && a.erase != nil {
		return a.reach
	}
	return a.reach + max(a.spent, a.before)
}

// stop has a list take nothing any more.
func (a *account) stop() {
	a.stopped = true
	if a.erase != nil {
		a.before = a.spent
		a.erase()
	}
}

// owner is the lists of the endpoints that one owner has.
type owner struct {
	lists map[*account]bool
	most  int // lines that all of them take, or more
	over  bool
}

// quota is how many lines each list of an owner may take.
func (o *owner) quota(share int) int { return share / len(o.lists) }
