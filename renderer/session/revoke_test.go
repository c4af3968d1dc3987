package session

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// printed is the session output of VPP 25.10, with colours and with IPv6.
const printed = "\x1b[33mConnection                                                  State          Rx-f      Tx-f\x1b[0m\n" + `
[0:0][CT:T] 0.0.0.0:22000->0.0.0.0:0                        LISTEN         0         0
[0:1][T] 10.0.0.1:22000->0.0.0.0:0                          LISTEN         0         0
[1:5][T] 10.0.0.1:22000->10.0.1.1:50332                     ESTABLISHED    0         0
[0:6][T] 10.0.0.1:40000->10.0.9.9:80                        CLOSE_WAIT     0         40000
[0:7][T] 10.0.0.1:22001->10.0.1.1:5963                      FIN_WAIT_2     40000     0
[0:8][U] fd00::1:53->fd00:1::1:5963                         OPENED         0         0
[0:9][CT:T] 10.0.0.1:22001->10.0.0.1:5963                   ESTABLISHED    0         0
[0:9][T] nonsense:22001->10.0.0.1:5963                      ESTABLISHED    0         0
[0:9][T] 10.0.0.1:70000->10.0.0.1:5963                      ESTABLISHED    0         0
Thread 0: 8 sessions matched filter
`

func TestSessionsAreParsedFromOutputOfVPP(t *testing.T) {
	end := netip.MustParseAddrPort
	want := []connection{
		{index: 0, transport: api.TCP, lcl: end("0.0.0.0:22000"), rmt: end("0.0.0.0:0"), listens: true, cut: true},
		{index: 1, transport: api.TCP, lcl: end("10.0.0.1:22000"), rmt: end("0.0.0.0:0"), listens: true},
		{thread: 1, index: 5, transport: api.TCP, lcl: end("10.0.0.1:22000"), rmt: end("10.0.1.1:50332")},
		{index: 6, transport: api.TCP, lcl: end("10.0.0.1:40000"), rmt: end("10.0.9.9:80")},
		{index: 8, transport: api.UDP, lcl: end("[fd00::1]:53"), rmt: end("[fd00:1::1]:5963")},
		{index: 9, transport: api.TCP, lcl: end("10.0.0.1:22001"), rmt: end("10.0.0.1:5963"), cut: true},
	}
	if got := parseConnections(printed); !slices.Equal(got, want) {
		t.Errorf("read are\n%v, want\n%v", got, want)
	}
}

// TestFinderJudgesConnectionsByTheirOpener uses a pod that accepts connections on one port, and may
// connect to another.
func TestFinderJudgesConnectionsByTheirOpener(t *testing.T) {
	const namespace = 3
	own := netip.MustParsePrefix("10.0.0.1/32")
	world := tops[0].peer
	r := finder{mirror: &mirror{sections: map[section]*present{
		{namespace, true, api.TCP, world, 0}: {rules: rules{tops[0]: api.Deny, {world, 80}: api.Permit}},
		{namespace, false, api.TCP, own, 0}:  {rules: rules{tops[0]: api.Deny, {netip.MustParsePrefix("10.0.1.0/24"), 22000}: api.Permit}},
	}, tables: map[tableKey]uint32{}}}
	end := netip.MustParseAddrPort
	for _, tc := range []struct {
		lcl, rmt   string
		accepted   bool
		transport  api.Protocol
		namespaces []uint32
		denied     bool
	}{
		{"10.0.0.1:22000", "10.0.1.1:80", true, api.TCP, []uint32{namespace}, false},
		{"10.0.0.1:22000", "10.0.2.1:80", true, api.TCP, []uint32{namespace}, true},
		{"10.0.0.1:22001", "10.0.1.1:80", true, api.TCP, []uint32{namespace}, true},
		{"10.0.0.1:40000", "10.0.2.1:80", false, api.TCP, []uint32{namespace}, false},
		{"10.0.0.1:40000", "10.0.2.1:443", false, api.TCP, []uint32{namespace}, true},
		{"10.0.0.1:40000", "10.0.2.1:443", false, api.TCP, []uint32{namespace, namespace + 1}, false}, // the other one may
		{"10.0.0.1:40000", "10.0.2.1:443", false, api.UDP, []uint32{namespace}, false},
	} {
		c := connection{transport: tc.transport, lcl: end(tc.lcl), rmt: end(tc.rmt)}
		if got := r.denies(tc.namespaces, c, tc.accepted); got != tc.denied {
			t.Errorf("%s, accepted %t, of namespaces %v: denied %t, want %t", c, tc.accepted, tc.namespaces, got, tc.denied)
		}
	}
}

func TestRevocationChecksOnlyPodsWithTightenedRules(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	var v revocation
	v.tightened(a)
	v.tightened(b)
	if !v.due || len(v.addresses) != 2 || !v.addresses[a] || !v.addresses[b] {
		t.Errorf("looked at are %v", v.addresses)
	}
	v.tightened()
	v.tightened(a)
	if !v.due || v.addresses != nil {
		t.Errorf("looked at are %v, want all", v.addresses)
	}
}

// TestFinderParsesCutThroughOwners uses a client in namespace 2.
func TestFinderParsesCutThroughOwners(t *testing.T) {
	managers := map[string]uint32{}
	addManagers(managers, `app-name client-a app-index 3 ns-index 2 seg-size 128m
rx-fifo-size 4k tx-fifo-size 4k max-fifo-memory 0 workers:
  wrk-index 3 app-index 3 map-index 0 api-client-index 7 mq-cong 0
segment manager
 [7] client-a app-wrk: 3 segs: 1 max-fifo-sz: 4m wmarks: 80 50 no-tuning flags: 
`)
	addManagers(managers, "No app with index 4")
	const clients = `Connection                                                  App                 API Client     SegManager
[0:7][CT:T] 0.0.0.0:0->10.0.0.1:22000                       ESTABLISHED    0         0         client-a            7              7         
[1:8][CT:T] 0.0.0.0:0->10.0.0.1:22000                       ESTABLISHED    0         0         client-b            8              9         
[0:9][T] 10.0.1.1:400->10.0.0.1:22000                       ESTABLISHED    0         0         client-a            7              7         
`
	owners := parseClients(clients, managers)
	if len(owners) != 1 || owners[sessionID{0, 7}] != 2 {
		t.Errorf("of %v read is %v", managers, owners)
	}
}

// TestFinderJudgesCutThroughConnectionsByTheirClient uses a pod that may connect to port 80, and
// one that may connect to nothing.
func TestFinderJudgesCutThroughConnectionsByTheirClient(t *testing.T) {
	world := tops[0].peer
	r := finder{pods: &pods{namespaces: map[api.PodID][]uint32{{Name: "may"}: {2}, {Name: "mayNot"}: {3}}}, mirror: &mirror{sections: map[section]*present{
		{2, true, api.TCP, world, 0}: {rules: rules{tops[0]: api.Deny, {world, 80}: api.Permit}},
		{3, true, api.TCP, world, 0}: {rules: rules{tops[0]: api.Deny}},
	}}}
	owners := map[sessionID]uint32{{0, 2}: 2, {0, 3}: 3, {0, 4}: 4}
	for _, tc := range []struct {
		index  int
		port   uint16
		denied bool
	}{
		{2, 80, false}, {2, 443, true}, {3, 80, true},
		{4, 443, false},                // in a namespace without a pod
		{5, 80, false}, {5, 443, true}, // the owner is unknown
	} {
		c := connection{index: tc.index, transport: api.TCP, rmt: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), tc.port), cut: true}
		if got := r.deniesClient(c, owners); got != tc.denied {
			t.Errorf("session %d to port %d: denied %t, want %t", tc.index, tc.port, got, tc.denied)
		}
	}
}
