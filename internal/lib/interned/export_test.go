package interned

// Len returns the number of values.
func (s *Values[K, V]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.by)
}
