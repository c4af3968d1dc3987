package kvstore_test

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/sluice-net/sluice/internal/kvstore"
)

// The members of a cluster are processes, so that they can die: this test binary
// started again with these variables.
const (
	memberEnv  = "KVSTORE_TEST_MEMBER"  // its name
	clientEnv  = "KVSTORE_TEST_CLIENT"  // its client address
	dirEnv     = "KVSTORE_TEST_DIR"     // its data
	clusterEnv = "KVSTORE_TEST_CLUSTER" // all names and peer URLs
)

// runMember is the main function of a member. It serves until its standard input
// ends, which it does with the test.
func runMember(name string) int {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = name, os.Getenv(dirEnv), os.Getenv(clusterEnv)
	cfg.UnsafeNoFsync, cfg.EnableGRPCGateway = true, false
	cfg.TickMs, cfg.ElectionMs = 20, 200
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(kvstore.ZapLogger(quiet))
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: os.Getenv(clientEnv)}}
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	for member := range strings.SplitSeq(cfg.InitialCluster, ",") {
		if peer, ok := strings.CutPrefix(member, name+"=http://"); ok {
			cfg.ListenPeerUrls = []url.URL{{Scheme: "http", Host: peer}}
			cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
		}
	}
	if _, err := embed.StartEtcd(cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// member is one running process of a cluster.
type member struct {
	address string // of clients
	process *exec.Cmd
}

// kill ends the member without giving it a chance to say so.
func (m member) kill(t *testing.T) {
	t.Helper()
	if err := m.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = m.process.Wait() // it was killed, and says so
}

// cluster starts n members that know each other.
func cluster(t *testing.T, n int) []member {
	t.Helper()
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("m%d=http://%s", i, freeAddress(t)))
	}
	members := make([]member, n)
	for i := range members {
		m := member{address: freeAddress(t), process: exec.Command(os.Args[0])}
		m.process.Env = append(os.Environ(), fmt.Sprintf("%s=m%d", memberEnv, i),
			clientEnv+"="+m.address, dirEnv+"="+t.TempDir(), clusterEnv+"="+strings.Join(all, ","))
		m.process.Stderr = os.Stderr
		stdin, err := m.process.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.process.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = stdin.Close() // fails when it was killed
			_ = m.process.Wait()
		})
		members[i] = m
	}
	return members
}

func TestAWatchEndsWithoutALeader(t *testing.T) {
	members := cluster(t, 3)
	c := dial(t, members[0].address)
	ended := watching(t, c, c)
	members[1].kill(t)
	members[2].kill(t)
	if err := <-ended; !errors.Is(err, kvstore.ErrNoLeader) {
		t.Errorf("the watch ended with %v", err)
	}
}

func TestTheDeathOfOneMemberLosesNothing(t *testing.T) {
	members := cluster(t, 3)
	c := dial(t, members[0].address, members[1].address, members[2].address)
	all := entries("/w/", 300)
	_, revision := list(t, c, "/w/")
	written := make(chan error, 1)
	go func() {
		for i, e := range all {
			if i == 100 {
				_ = members[1].process.Process.Kill() // Cleanup waits for it
			}
			if err := c.Write(t.Context(), all[i:i+1], nil); err != nil {
				written <- fmt.Errorf("%s: %w", e.Key, err)
				return
			}
		}
		written <- nil
	}()
	// A watch that breaks is begun again where it ended, as it may be as long as
	// the revision is not compacted. An attempt of a write that was repeated may
	// have taken effect, so keys can come twice.
	got := map[string]bool{}
	for deadline := time.Now().Add(patience); len(got) < len(all); {
		entries, last, err := collectSome(c, "/w/", revision+1, len(all)-len(got))
		for _, e := range entries {
			got[e.Key] = true
		}
		if revision = max(revision, last); time.Now().After(deadline) {
			t.Fatalf("%d of %d keys arrived: %v", len(got), len(all), err)
		}
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}
