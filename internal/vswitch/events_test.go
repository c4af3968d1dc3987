package vswitch

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/sluice-net/sluice/internal/vswitch/internal/events"
)

// TestClientGetsAllEventsOfManyInterfaces adds all pods of a large node while the
// client's transport is busy.
func TestClientGetsAllEventsOfManyInterfaces(t *testing.T) {
	var text bytes.Buffer
	sw, _ := newTestSwitch(t, Options{Log: slog.New(slog.NewTextHandler(&text, nil))})
	c, err := sw.connect()
	if err != nil {
		t.Fatal(err)
	}
	defer sw.release(c)
	if !sw.wantEvents(c, true, 0) {
		t.Fatal("the client wants events already")
	}
	const pods = 5000
	for i := range pods {
		sw.AddInterface(fmt.Sprint("pod", i), "")
	}
	<-c.events.Ready
	if n := len(c.events.Take()); n < pods {
		t.Errorf("%d events of %d interfaces: %s", n, pods, text.String())
	}

	// A client that never reads is reported once.
	for range events.Max + 1000 {
		c.event(&interfaces.SwInterfaceEvent{})
	}
	if n := strings.Count(text.String(), "events of a client are lost"); n != 1 {
		t.Errorf("%d lines of lost events, want 1: %.500s", n, text.String())
	}
	if n := len(c.events.Take()); n != events.Max {
		t.Errorf("%d events wait, want %d", n, events.Max)
	}
}
