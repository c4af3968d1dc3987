package kvstore

// Abandon lets the lease of a term expire, as the death of its process does.
func (t *Term) Abandon() error {
	t.stop()
	t.kept.Wait()
	return nil
}
