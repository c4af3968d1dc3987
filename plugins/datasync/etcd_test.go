package datasync_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

func TestWatcherDeliversSnapshotThenChanges(t *testing.T) {
	for name, remote := range map[string]bool{"over the network": true, "in process": false} {
		t.Run(name, func(t *testing.T) {
			s := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
			writer, reader := s.Client(), s.Client()
			if remote {
				reader = dial(t, s)
			}
			want := pods(10, "n1").add(&model.Namespace{Name: "shop"})
			write(t, writer, want)
			writeRaw(t, writer, []model.Entry{{Key: "/elsewhere", Value: []byte("x")}})

			c := run(t, datasync.Config{Store: reader})
			if first := c.next(t); !first.Resync || len(first.Deltas) != len(want) {
				t.Errorf("the first changes are %v", first)
			}
			c.reach(t, want)
			// A pod before its namespace, a policy before its pods, a deletion.
			write(t, writer, state{}.add(&model.Pod{Namespace: "new", Name: "p"}))
			c.reach(t, want.add(&model.Pod{Namespace: "new", Name: "p"}))
			want.add(&model.NetworkPolicy{Namespace: "shop", Name: "web", IsolatesIngress: true}, &model.Namespace{Name: "new"})
			delete(want, podID("pod-00003"))
			write(t, writer, want, keyOf("pod-00003"))
			c.reach(t, want)
			last := c.changes[len(c.changes)-1].Revision
			c.await(t, "the status of what was delivered", func(s datasync.Status) bool {
				return s.Following && s.Objects == len(want) && s.Resyncs["start"] == 1 && s.Revision == last
			})
		})
	}
}

func TestChangesCoalesceWhileConsumerIsBusy(t *testing.T) {
	client := inprocess.Start(t, embedded.Config{}).Client()
	write(t, client, pods(5, "n1"))
	c := run(t, datasync.Config{Store: client})
	c.reach(t, pods(5, "n1"))
	before := len(c.changes)
	var last int64
	for i := range 200 {
		write(t, client, state{}.add(newPod("pod-00001", fmt.Sprint("n", i))))
	}
	write(t, client, state{}, keyOf("pod-00002"))
	st, err := client.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last = st.Revision
	c.await(t, "the last revision", func(s datasync.Status) bool { return s.Revision == last })
	changes := c.next(t)
	if changes.Resync || len(changes.Deltas) != 2 || changes.Revision != last || len(c.changes) != before+1 {
		t.Errorf("201 changes of two objects came as %v", changes)
	}
	want := pods(5, "n1").add(newPod("pod-00001", "n199"))
	delete(want, podID("pod-00002"))
	c.reach(t, want)
}

func TestWatcherDeliversTenThousandPods(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
	want := pods(10_000, "n1")
	write(t, s.Client(), want)
	c := run(t, datasync.Config{Store: dial(t, s)})
	c.reach(t, want)
	if len(c.changes) != 1 {
		t.Errorf("it took %d changes", len(c.changes))
	}
	moved := pods(1000, "n2")
	write(t, s.Client(), moved)
	maps.Copy(want, moved)
	c.reach(t, want)
}

func TestWatcherIgnoresWritesWithoutChange(t *testing.T) {
	client := inprocess.Start(t, embedded.Config{}).Client()
	write(t, client, pods(50, "n1"))
	c := run(t, datasync.Config{Store: client})
	c.next(t)
	write(t, client, pods(50, "n1"))
	c.await(t, "50 dropped writes", func(s datasync.Status) bool { return s.Unchanged == 50 })
	write(t, client, state{}.add(newPod("one", "n1")))
	if changes := c.next(t); changes.Resync || len(changes.Deltas) != 1 {
		t.Errorf("the next changes are %v", changes)
	}
}

func TestValuesThatDoNotDecode(t *testing.T) {
	s := inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback})
	client := s.Client()
	want := pods(3, "n1")
	write(t, client, want)
	bad := []byte{0xff}
	writeRaw(t, client, []model.Entry{{Key: keyOf("never-good"), Value: bad}, {Key: keyOf("a/b"), Value: bad}})
	store := &faulty{Store: dial(t, s)}
	c := run(t, datasync.Config{Store: store})
	c.reach(t, want)
	writeRaw(t, client, []model.Entry{{Key: keyOf("pod-00001"), Value: bad}})
	write(t, client, state{}.add(newPod("pod-00002", "n2")))
	c.reach(t, want.add(newPod("pod-00002", "n2")))
	store.breakWatch(t, c, errors.New("cut"))
	for !c.next(t).Resync {
	}
	c.reach(t, want) // the last good value is in the resync too
	c.await(t, "the count of problems", func(s datasync.Status) bool { return s.Problems == 3 && s.Reported == 3 && s.Objects == 3 })
	var keys []string
	for range 3 {
		keys = append(keys, (<-c.problems).Source)
	}
	slices.Sort(keys)
	if diff := cmp.Diff([]string{keyOf("a/b"), keyOf("never-good"), keyOf("pod-00001")}, keys); diff != "" {
		t.Errorf("problems: want - got +\n%s", diff)
	}
	write(t, client, state{}.add(newPod("pod-00001", "n3")), keyOf("a/b"), keyOf("never-good"))
	c.reach(t, want.add(newPod("pod-00001", "n3")))
	c.await(t, "no problem", func(s datasync.Status) bool { return s.Problems == 0 })
}
