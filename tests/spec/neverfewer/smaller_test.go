package neverfewer

import (
	"slices"

	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// smaller lists cases with less in them, the smallest first.
func smaller(c Case) (out []Case) {
	with := func(i int, s ...Step) {
		steps := slices.Concat(c.Steps[:i], s, c.Steps[i+1:])
		out = append(out, c.of(steps))
	}
	for n := len(c.Steps) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(c.Steps); i++ {
			out = append(out, c.of(slices.Concat(c.Steps[:i], c.Steps[i+n:])))
		}
	}
	for i, s := range c.Steps { // two steps at once
		if i+1 < len(c.Steps) && len(s.Fail) == 0 {
			joined := c.Steps[i+1]
			joined.What, joined.Edits = s.What+", "+joined.What, slices.Concat(s.Edits, joined.Edits)
			out = append(out, c.of(slices.Concat(c.Steps[:i], []Step{joined}, c.Steps[i+2:])))
		}
	}
	seen := map[string]bool{} // all edits of one object
	for _, s := range c.Steps {
		for _, e := range s.Edits {
			if !seen[e.String()] {
				seen[e.String()] = true
				out = append(out, without(c, e.String()))
			}
		}
	}
	for i, s := range c.Steps {
		for j := range s.Edits {
			less := s
			less.Edits = slices.Delete(slices.Clone(s.Edits), j, j+1)
			with(i, less)
		}
		for j := range s.Fail {
			less := s
			less.Fail = slices.Delete(slices.Clone(s.Fail), j, j+1)
			with(i, less)
		}
		if s.Leave || s.Restart || s.Stop > 0 {
			less := s
			less.Leave, less.Restart, less.Stop = false, false, 0
			with(i, less)
		}
		for j, n := range s.Fail {
			if n > 1 {
				less := s
				less.Fail = slices.Clone(s.Fail)
				less.Fail[j] = n - 1
				with(i, less)
			}
		}
	}
	if plain := c; c.Loop {
		plain.Loop = false
		out = append(out, plain)
	}
	return out
}

// of returns the case with other steps.
func (c Case) of(steps []Step) Case {
	c.Steps = steps
	return c
}

// without leaves out everything that happens to an object.
func without(c Case, object string) Case {
	c.Steps = slices.Clone(c.Steps)
	for i := range c.Steps {
		c.Steps[i].Edits = slices.DeleteFunc(slices.Clone(c.Steps[i].Edits), func(e cluster.Edit) bool { return e.String() == object })
	}
	return c
}
