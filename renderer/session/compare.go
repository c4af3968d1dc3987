package session

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// compare returns the differences of our rules from the mirror, and whether foreign rules differ.
func (m *mirror) compare(ctx context.Context, l *link) (found []string, others bool, err error) {
	all, err := l.dump(ctx)
	if err != nil {
		return nil, false, err
	}
	has, rest := map[section]rules{}, 0
	for _, d := range all {
		f, ok := l.found(d)
		if !ok {
			continue
		}
		at := f.section
		at.namespace = slices.Min(f.namespaces)
		if has[at] == nil {
			has[at] = rules{}
		}
		has[at][f.place] = action(f.action)
		rest++
	}
	for _, s := range slices.SortedFunc(maps.Keys(m.sections), section.compare) {
		p := m.sections[s]
		found = append(found, s.differences(p.rules, has[s])...)
		rest -= len(p.rules)
	}
	for s, places := range m.foreign {
		for at := range places {
			_, there := has[s][at]
			others = others || !there
		}
		rest -= len(places)
	}
	return found, others || rest != 0, nil
}

// differences describes the rules of ours in a section that are missing or changed.
func (s section) differences(ours, has rules) (out []string) {
	for _, at := range ours.sorted() {
		switch a, ok := has[at]; {
		case !ok:
			out = append(out, s.rule(at)+" is gone")
		case a != ours[at]:
			out = append(out, fmt.Sprintf("%s has action %s instead of %s", s.rule(at), a, ours[at]))
		}
	}
	return out
}
