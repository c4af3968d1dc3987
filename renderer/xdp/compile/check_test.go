package compile

import (
	"fmt"
	"slices"
)

// check returns an error if what the image keeps up to date is not what it is computed from.
func (m *Image) check() error {
	prefixes := make([]int, m.classes.count())
	var digits func(d *digit)
	count := func(c *content) {
		for _, e := range c.entries {
			prefixes[e.class]++
		}
		for _, k := range c.kids {
			digits(k.to)
		}
	}
	digits = func(d *digit) {
		count(&d.wide)
		for _, b := range d.fine {
			if b != nil {
				count(&b.content)
			}
		}
	}
	digits(&m.addresses.v4.top)
	digits(&m.addresses.v6.top)
	for c := range m.classes.all {
		d := &m.classes.all[c]
		if c > 0 && (d.prefixes != prefixes[c] || d.used != (prefixes[c] > 0)) {
			return fmt.Errorf("class %d is used is %t, by %d prefixes, want %d", c, d.used, d.prefixes, prefixes[c])
		}
		if !d.live {
			continue
		}
		for _, a := range m.classes.owns.sets[d.own].atoms {
			if a != infraAtom && (m.nets.users[a] == 0 || !m.nets.written[a]) {
				return fmt.Errorf("class %d has atom %d, which no list wants", c, a)
			}
		}
	}
	all := m.classes.living()
	for _, p := range m.lists.programs {
		switch {
		case p.written != p.isAdmitted():
			return fmt.Errorf("a list is in the map is %t, and admitted is %t", p.written, p.isAdmitted())
		case p.written || !p.stale && p.wanted:
			want := m.lists.count(p, all, m.limits.Rows.List)
			if most := m.limits.Rows.List; want != p.cost && (most == 0 || want <= most || p.cost <= most) {
				return fmt.Errorf("a list costs %d, and %d is what is known", want, p.cost)
			}
		}
		if !p.written {
			continue
		}
		for _, c := range all {
			if !m.classes.all[c].used || c == infraClass {
				continue
			}
			var want sum
			for at := c; at != 0; at = m.classes.all[at].parent {
				for _, a := range m.classes.owns.sets[m.classes.all[at].own].atoms {
					if slices.Contains(p.atoms, a) {
						want = want.plus(m.classes.owns.sums[a])
					}
				}
			}
			r := p.table.rowOf(c)
			if r == nil || r.sum != want || m.arena.word(p.table.pages[c/pageClasses].line*LineWords+uint32(c%pageClasses)) != r.line {
				return fmt.Errorf("a list has the wrong row for class %d: %v", c, r)
			}
		}
	}
	return nil
}
