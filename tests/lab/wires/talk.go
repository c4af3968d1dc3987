package wires

import "net"

// Talk is an open connection of TCP with an echo at its other end.
type Talk struct {
	c    *Cable
	conn net.Conn
}

// Open connects two pods, until the test ends.
func (c *Cable) Open(from, to string, family int, port uint16) *Talk {
	c.T.Helper()
	conn, err := c.Dial(from, to, "tcp", family, port, Patience)
	c.Must(err)
	c.T.Cleanup(func() { _ = conn.Close() })
	return &Talk{c, conn}
}

// GoesOn ends the test if the connection is not answered any more.
func (t *Talk) GoesOn(what string) {
	t.c.T.Helper()
	if err := Echo(t.conn, Patience); err != nil {
		t.c.T.Fatalf("%s: an open connection ends: %v", what, err)
	}
}

// IsCut checks that the connection is not answered any more.
func (t *Talk) IsCut(what string) {
	t.c.T.Helper()
	if Echo(t.conn, Impatience) == nil {
		t.c.T.Errorf("%s: an open connection goes on that is not permitted any more", what)
	}
}

// Right checks that all packets of some counts, at least so many of each, were treated as they
// must be.
func (c *Cable) Right(least int64, counts ...*Count) {
	c.T.Helper()
	for _, n := range counts {
		n.Stop()
		c.T.Logf("%d packets, %d treated wrongly", n.Sent.Load(), n.Wrong.Load())
		if n.Wrong.Load() != 0 || n.Sent.Load() < least {
			c.T.Errorf("%d of %d packets were treated wrongly", n.Wrong.Load(), n.Sent.Load())
		}
	}
}
