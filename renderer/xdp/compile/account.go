package compile

// account is the cost of a list, in lines, and the owners that pay for it.
type account struct {
	exempt   bool // never refused, because it denies everything
	reach    int  // addresses that it names, divided among the lists that name them
	spent    int  // lines in use
	before   int  // lines in use when it was stopped
	stopped  bool // it took too many lines, and has no rows
	replaced bool // another list will replace it wherever it is in force
	owners   []*owner
	erase    func() // frees the written lines; nil for a refused list, which has none
}

// cost returns how many lines a list takes, or took until it was stopped: its part of the addresses
// that it names, and its rows. It does not count pages, whose number depends on history. If early,
// it does not count rows of lists that are not refused.
func (a *account) cost(early bool) int {
	if early && a.erase != nil {
		return a.reach
	}
	return a.reach + max(a.spent, a.before)
}

// stop frees the lines of a list, which gets no rows any more.
func (a *account) stop() {
	a.stopped = true
	if a.erase != nil {
		a.before = a.spent
		a.erase()
	}
}

// owner has the lists of the endpoints of one owner.
type owner struct {
	lists map[*account]bool
	most  int // the largest known sum of their lines
	over  bool
}

// quota returns how many lines each list of an owner may take.
func (o *owner) quota(share int) int { return share / len(o.lists) }
