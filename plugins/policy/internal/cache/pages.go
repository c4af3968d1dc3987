package cache

// pages is a long list that grows by pages, so that no event has to copy all of it.
type pages[T any] struct {
	pages [][]T
	n     int
}

const pageSize = 1 << 10

func (l *pages[T]) len() int { return l.n }

func (l *pages[T]) at(i uint32) *T { return &l.pages[i/pageSize][i%pageSize] }

// add appends a zero value and returns its index.
func (l *pages[T]) add() uint32 {
	if l.n%pageSize == 0 {
		l.pages = append(l.pages, make([]T, pageSize))
	}
	l.n++
	return uint32(l.n - 1)
}

// alloc returns a free slot of a table.
func alloc[T any, ID ~uint32](table *[]T, free *[]ID) ID {
	if n := len(*free); n > 0 {
		id := (*free)[n-1]
		*free = (*free)[:n-1]
		return id
	}
	var zero T
	*table = append(*table, zero)
	return ID(len(*table) - 1)
}
