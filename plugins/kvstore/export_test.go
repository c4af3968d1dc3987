package kvstore

import "time"

// ProbeEvery sets how often watches ask for progress.
func (c *Client) ProbeEvery(d time.Duration) { c.probeEvery = d }

// Abandon lets the lease of a term expire, as the death of its process does.
func (t *Term) Abandon() error {
	t.stop()
	t.kept.Wait()
	return nil
}
