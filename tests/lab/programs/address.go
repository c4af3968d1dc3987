package programs

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// FreeAddress returns an address on loopback where no process listens. The kernel gives its port to
// no connection that leaves: a client that tries to connect to it, while its server is away, would
// otherwise get it some day.
func FreeAddress(t testing.TB) string {
	t.Helper()
	first, last := 0, 0
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), &first, &last); err != nil {
		t.Fatal(err)
	}
	const lowest = 1024 // what is below is for known services
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(max(first, 2*lowest)-lowest))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close() // nothing was sent
			return address
		}
	}
	t.Fatal("no free port in 100 tries")
	return ""
}
