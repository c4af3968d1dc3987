package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/tests/lab/marked"
)

// measured is a source that notes which changes a transaction is of.
type measured struct {
	policy.Source
	s    *scale
	node int
	in   []string // pods of the transaction that runs; the event loop's
}

// Next implements policy.Source.
func (m *measured) Next(ctx context.Context) (model.Changes, error) {
	c, err := m.Source.Next(ctx)
	for _, d := range c.Deltas {
		if p, ok := d.Value.(*model.Pod); ok && len(p.GetIps()) > 0 && !c.Resync {
			pod := d.ID.Namespace + "/" + d.ID.Name
			m.in = append(m.in, pod)
			m.s.note(pod, func(c *journey) *time.Time { return &c.taken[m.node] })
		}
	}
	return c, err
}

// committed observes every transaction.
func (m *measured) committed(st policy.Status) {
	if !st.InSync() {
		return
	}
	for _, pod := range m.in {
		m.s.note(pod, func(c *journey) *time.Time { return &c.committed[m.node] })
	}
	m.in = nil
}

// wholeNode runs the pipeline of a node over a watch of its own, down to the embedded
// vswitch, and waits for its first state.
func (s *scale) wholeNode(i int) {
	s.t.Helper()
	client := reader(s.t, s.members.Endpoints())
	w := datasync.New(datasync.Config{Store: marked.Store(client), Log: slog.New(slog.DiscardHandler)})
	m := &measured{Source: w, s: s, node: i}
	n, err := node.New(node.Config{
		Name: fmt.Sprintf("node-%d", i), AllowNode: true, Source: m, Observer: policy.Observer{Transaction: m.committed}, Log: slog.New(slog.DiscardHandler),
		Backends: []node.Backend{&node.Vswitch{}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if err := n.Start(); err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // it ends with its context
	s.t.Cleanup(func() {
		if err := n.Close(); err != nil {
			s.t.Error(err)
		}
		cancel()
		running.Wait()
	})
	eventually(s.t, func() error { return settled(n.Plugin.Status()) })
}

// agentsEnv makes a process many agents; the value has their number, before the endpoints.
const agentsEnv = "SLUICE_TEST_AGENTS"

// lightAgents starts agents that hold a connection and a watch each, and discard what they receive.
// They are one process with the lowest priority, because real agents have processors of their own.
func (s *scale) lightAgents() {
	s.t.Helper()
	cmd := exec.Command("nice", "-n", "19", os.Args[0]) // becomes it
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", agentsEnv, s.agents, strings.Join(s.members.Endpoints(), " ")))
	cmd.Stderr = os.Stderr
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, cmd.Start()); err != nil {
		s.t.Fatal(err)
	}
	s.others = cmd.Process.Pid
	var reading sync.WaitGroup
	s.t.Cleanup(func() {
		_ = in.Close() // makes it end
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			s.t.Errorf("the agents ended with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		s.t.Fatalf("the agents say %q", lines.Text())
	}
	reading.Go(func() {
		for lines.Scan() {
			var pod string
			var events, at int64
			switch _, err := fmt.Sscan(lines.Text(), &pod, &events, &at); {
			case err != nil:
				s.t.Errorf("the agents say %q: %v", lines.Text(), err)
			case pod == "-":
				s.events.Store(events)
			default:
				s.hear(pod, time.Unix(0, at))
			}
		}
	})
}

// hear records that an agent has received a change.
func (s *scale) hear(pod string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.changes[pod]; c != nil {
		s.heard = append(s.heard, at.Sub(c.asked))
	}
}

// beAgents is that process. It writes "ready", then a line "POD 0 NANOSECONDS" when one of a sample
// of agents receives the address of a pod, and every second "- EVENTS 0".
func beAgents(text string) {
	words := strings.Fields(text)
	n, _ := strconv.Atoi(words[0]) // it was a number
	var events atomic.Int64
	var writing sync.Mutex
	out := bufio.NewWriter(os.Stdout)
	var ready sync.WaitGroup
	limit := make(chan struct{}, 20) // that connect at once
	for i := range n {
		ready.Add(1)
		go func() {
			limit <- struct{}{}
			c, err := kvstore.Dial(context.Background(), kvstore.Config{Endpoints: words[1:], DialTimeout: time.Minute}, slog.New(slog.DiscardHandler))
			<-limit
			ready.Done()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			listen(c, &events, i%10 == 0, func(pod string) {
				now := time.Now().UnixNano()
				writing.Lock()
				defer writing.Unlock()
				_, _ = fmt.Fprintln(out, pod, 0, now) // the reader has ended, and ends this process
			})
		}()
	}
	ready.Wait()
	fmt.Println("ready")
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the test
		writing.Lock()
		_ = out.Flush() // whole lines
		os.Exit(0)
	}()
	for range time.Tick(time.Second) {
		writing.Lock()
		_, _ = fmt.Fprintln(out, "-", events.Load(), 0)
		_ = out.Flush()
		writing.Unlock()
	}
}

// listen watches for ever; an agent of the sample also reports pods that got an address.
func listen(c *kvstore.Client, events *atomic.Int64, sample bool, tell func(pod string)) {
	root, seen := model.Root(model.DefaultPrefix), map[string]bool{}
	ctx := context.Background()
	s, err := c.Status(ctx)
	for from := s.Revision; err == nil; {
		_ = c.Watch(ctx, root, from+1, func(entries []model.Entry, revision int64) {
			from = revision
			events.Add(int64(len(entries)))
			if !sample {
				return
			}
			for _, e := range entries {
				if pod, ok := addressed(e); ok && !seen[pod] {
					seen[pod] = true
					tell(pod)
				}
			}
		})
	}
}
