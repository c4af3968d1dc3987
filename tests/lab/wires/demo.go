package wires

import (
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// Demo has a pod that is isolated in both directions, and two that are not, with the addresses of
// the first hosts of a cable.
var Demo = `
{apiVersion: v1, kind: Namespace, metadata: {name: demo}}
` + DemoPod("server", `{ip: 10.99.0.2}, {ip: "fd00::2"}`) + DemoPod("friend", `{ip: 10.99.0.3}, {ip: "fd00::3"}`) + DemoPod("stranger", `{ip: 10.99.0.4}, {ip: "fd00::4"}`) + `
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server, namespace: demo}
spec:
  podSelector: {matchLabels: {app: server}}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]
`

// DemoPod is the manifest of a pod on the demo's node, which has its name for a label. The
// addresses are those of its status.
func DemoPod(name, addresses string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: demo, labels: {app: %[1]s}}
spec: {nodeName: node-1}
status: {phase: Running, podIPs: [%[2]s]}
`, name, addresses)
}

// TryDemo tries every protocol in both families.
func (c *Cable) TryDemo() {
	c.T.Helper()
	for _, family := range []int{4, 6} {
		c.Can(true, "the friend", "friend", "server", "tcp", family, 80)
		c.Can(true, "the friend", "friend", "server", "udp", family, 80)
		c.Can(false, "the friend at another port", "friend", "server", "tcp", family, 81)
		c.Can(false, "the friend's ping", "friend", "server", "icmp", family, 0)
		c.Can(false, "the stranger", "stranger", "server", "tcp", family, 80)
		c.Can(false, "the server as a client", "server", "friend", "tcp", family, 80)
		c.Can(true, "who is not isolated", "stranger", "friend", "icmp", family, 0)
	}
}

// Lead listens inside the namespace of the node, until the test ends, and leads to what listens at
// an address outside of it. While the address is nil, or no process listens, connections end.
func (c *Cable) Lead(target *atomic.Pointer[string]) (near string) {
	var l net.Listener
	c.Must(Inside(c.Node, func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	c.T.Cleanup(func() { _ = l.Close() }) // which ends what follows
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			join(in, target.Load())
		}
	}()
	return l.Addr().String()
}

// join joins a connection with one to an address.
func join(in net.Conn, address *string) {
	if address == nil {
		_ = in.Close()
		return
	}
	out, err := net.Dial("tcp", *address)
	if err != nil {
		_ = in.Close()
		return
	}
	for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(c[0], c[1])
			_, _ = c[0].Close(), c[1].Close()
		}()
	}
}
