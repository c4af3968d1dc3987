package expand

// repeats finds items with equal keys, without a list for each of many keys that differ.
type repeats[K comparable] struct {
	numbers map[K]int // of keys, by first use
	count   []int     // by number
	of      []int     // number of each item; -1: it is left out
	last    K         // equal keys often follow each other
}

func newRepeats[K comparable](items int) *repeats[K] {
	return &repeats[K]{numbers: make(map[K]int), of: make([]int, 0, items)}
}

// add adds the next item.
func (r *repeats[K]) add(key K) {
	n := len(r.of) - 1
	if n >= 0 && r.of[n] >= 0 && key == r.last {
		n = r.of[n]
	} else {
		known := false
		if n, known = r.numbers[key]; !known {
			n = len(r.count)
			r.numbers[key], r.count = n, append(r.count, 0)
		}
	}
	r.last = key
	r.count[n]++
	r.of = append(r.of, n)
}

// skip leaves the next item out.
func (r *repeats[K]) skip() { r.of = append(r.of, -1) }

// all returns the indexes of items that share their key with others, by the first use of the key.
func (r *repeats[K]) all() (out [][]int) {
	place := make([]int, len(r.count))
	for n, c := range r.count {
		if place[n] = -1; c > 1 {
			place[n] = len(out)
			out = append(out, make([]int, 0, c))
		}
	}
	for i, n := range r.of {
		if n >= 0 && place[n] >= 0 {
			out[place[n]] = append(out[place[n]], i)
		}
	}
	return out
}
