package configurator

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// noteRefused keeps which lists refuse something.
func (in *interner) noteRefused(l *list, used bool) {
	if len(l.refused) == 0 {
		return
	}
	if in.refusals = nil; used {
		in.refusing[l] = struct{}{}
	} else {
		delete(in.refusing, l)
	}
}

// unenforced returns what lists in use refuse, sorted; the same slice as long as it is
// the same.
func (in *interner) unenforced() []renderer.Unenforced {
	if in.refusals != nil || len(in.refusing) == 0 {
		return in.refusals
	}
	for l := range in.refusing {
		for _, r := range l.refused {
			for _, o := range r.origins {
				in.refusals = append(in.refusals, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: r.reason})
			}
		}
	}
	in.refusals = renderer.SortUnenforced(in.refusals)
	return in.refusals
}
