package plugin

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// TestLayoutIsThatOfProgram compares the headers of files with image.h, whose compiler checks what
// it says.
func TestLayoutIsThatOfProgram(t *testing.T) {
	b, err := os.ReadFile("src/image.h")
	if err != nil {
		t.Fatal(err)
	}
	var h policyHeader
	var s stateHeader
	lines := []string{
		fmt.Sprintf("#define NAME_BYTES %d", nameBytes),
		fmt.Sprintf("sizeof(struct ring) == %d && sizeof(struct event) == %d && RING_RECORDS == %d,", unsafe.Offsetof(ring{}.Records), unsafe.Sizeof(ring{}.Records[0]), ringRecords),
		fmt.Sprintf("#define IMAGE_MAGIC %#xULL", magic), fmt.Sprintf("#define IMAGE_VERSION %d", version), fmt.Sprintf("#define MOST_THREADS %d", mostThreads),
		fmt.Sprintf("sizeof(struct policy_header) == %d && sizeof(struct state_header) == %d,", unsafe.Offsetof(h.Owned), unsafe.Sizeof(s)),
		fmt.Sprintf("HAS_OFFSET(state_header, threads, %d);", unsafe.Offsetof(s.Threads)), fmt.Sprintf("HAS_OFFSET(state_header, epochs, %d);", unsafe.Offsetof(s.Epochs)),
	}
	for member, at := range map[string]uintptr{
		"at_lines": unsafe.Offsetof(h.At) + unsafe.Offsetof(h.At.Lines), "at_endpoints": unsafe.Offsetof(h.At) + unsafe.Offsetof(h.At.Endpoints), "at_flows": unsafe.Offsetof(h.At) + unsafe.Offsetof(h.At.Flows), "at_counters": unsafe.Offsetof(h.At) + unsafe.Offsetof(h.At.Counters),
		"at_events": unsafe.Offsetof(h.At) + unsafe.Offsetof(h.At.Events), "at_names": unsafe.Offsetof(h.At) + unsafe.Offsetof(h.At.Names),
		"at_verdicts": unsafe.Offsetof(h.At) + unsafe.Offsetof(h.At.Verdicts),
		"policy_size": unsafe.Offsetof(h.Sizes), "buckets": unsafe.Offsetof(h.Sizes) + unsafe.Offsetof(h.Sizes.Buckets), "settings": unsafe.Offsetof(h.Settings),
		"rules":        unsafe.Offsetof(h.Settings) + unsafe.Offsetof(h.Settings.Rules),
		"tunnel_ports": unsafe.Offsetof(h.Settings) + unsafe.Offsetof(h.Settings.TunnelPorts), "changes": unsafe.Offsetof(h.Changes), "limits": unsafe.Offsetof(h.Limits),
		"evfilter": unsafe.Offsetof(h.EventFilter),
	} {
		lines = append(lines, fmt.Sprintf("HAS_OFFSET(policy_header, %s, %d);", member, at))
	}
	for _, line := range lines {
		if !strings.Contains(string(b), line) {
			t.Errorf("image.h does not say %q: what else says so?", line)
		}
	}
}
