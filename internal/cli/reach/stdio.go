package reach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
)

// Stdio joins in and out with the socket of the agent of this node, until either end closes.
func Stdio(ctx context.Context, socket string, in io.Reader, out io.Writer) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return fmt.Errorf("no agent answers: %w", err)
	}
	if _, err := io.WriteString(out, greeting); err != nil {
		return errors.Join(err, conn.Close())
	}
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(conn, in)
		ended <- err
	}()
	go func() {
		_, err := io.Copy(out, conn)
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return errors.Join(err, conn.Close())
}
