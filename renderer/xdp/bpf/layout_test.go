package bpf

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestLayoutHasNumbersOfCompiler compares policymap.h with layout.go of package compile.
func TestLayoutHasNumbersOfCompiler(t *testing.T) {
	header := read(t, "src/policymap.h")
	layout := spaces.ReplaceAllString(read(t, "../compile/layout.go"), " ")
	for c, text := range map[string]string{
		"LINE_WORDS 16": "LineWords = 16", "KIND_SMALL (1U << 30)": "kindSmall uint32 = 1 << 30", "KIND_BIG (2U << 30)": "kindBig   uint32 = 2 << 30",
		"KIND_NODE (3U << 30)": "kindNode  uint32 = 3 << 30", "NEXT_NODE (1U << 29)": "nextNode uint32 = 1 << 29", "ALLOW (1U << 29)": "Allow    uint32 = 1 << 29",
		"SLOT_MASK ((1U << 28) - 1)": "SlotMask uint32 = 1<<28 - 1", "SMALL_START 4": "smallStart           = 4", "SMALL_VALUE 8": "smallValue           = 8",
		"NODE_MISS 0": "nodeMiss  = 0", "NODE_CELL 1": "nodeCell  = 1", "NODE_DIGIT 2": "nodeDigit = 2", "NODE_VALUE 4": "nodeValue = 4", "NODE_MASK 8": "nodeMaskW = 8",
		"RECORD_ID 0": "RecordID      = 0", "RECORD_FLAGS 1": "RecordFlags   = 1", "RECORD_ROOT4 2": "RecordRoot4   = 2", "RECORD_ROOT6 3": "RecordRoot6   = 3",
		"RECORD_TABLE 4": "RecordTable   = 4", "RECORD_CLASSES 6": "RecordClasses = 6", "RECORD_COUNT4 8": "RecordCount4  = 8", "RECORD_COUNT6 9": "RecordCount6  = 9", "RECORD_SLOT 10": "RecordSlot    = 10",
		"RECORD_PAGE 12": "RecordPage    = 12",
		"RECORD_ADDR4 1": "recordAddr4 = 1", "RECORD_ADDR6 2": "recordAddr6 = 2", "MAX_ADDRESSES 16": "MaxAddresses = 16", "PAGE_CLASSES 64": "pageClasses = 64", "NODE_LINES 16": "bigLines, nodeLines = 3, 16",
	} {
		if !strings.Contains(header, "#define "+c+"\n") {
			t.Errorf("policymap.h does not say #define %s", c)
		}
		if !strings.Contains(layout, " "+spaces.ReplaceAllString(text, " ")+" ") {
			t.Errorf("layout.go does not say %s", text)
		}
	}
	for file, lines := range map[string][]string{ // of inplace.go, and of package xdp
		"src/policymap.h": {"#define ROOT_LINES 4096\n"}, "src/shares.h": {"#define PLACES 16384\n"}, "src/report.h": {"#define DROP_PLACES 16 "},
		"src/recent.h": {"#define RECENT_SHIFT 48 ", "\t__u64 w[2];\n", "recent_threshold) = 1 << 13;"}, "../kerneloptions.go": {"DefaultFlowCacheThreshold = 1 << 13\n"},
		"../compile/layout.go": {"rootLines   = rootKeys / LineWords\n"},
		"inplace.go": {
			"LineBytes      = 64\n", "const Places = 1 << 14\n", "EndpointsBytes = 8 * Places\n", "RecentBytes    = 16 << 16\n", "DropBytes      = 16 * 8 ",
		},
	} {
		for _, line := range lines {
			if !strings.Contains(read(t, file), line) {
				t.Errorf("%s does not say %q any more: what else says so?", file, line)
			}
		}
	}
	for i, name := range []string{"FLAG_TO_POD", "FLAG_FROM_POD", "FLAG_LEARN", "FLAG_KEEP", "FLAG_PORTS_TO", "FLAG_PORTS_FROM"} {
		if !regexp.MustCompile(`#define ` + name + ` ` + []string{"1", "2", "4", "8", "16", "32"}[i] + `\n`).MatchString(header) {
			t.Errorf("policymap.h has another %s", name)
		}
	}
}

// TestMapNamesFitKernel checks that the kernel, which keeps 15 bytes, shows the whole name of
// every map.
func TestMapNamesFitKernel(t *testing.T) {
	spec, err := LoadSluice()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Maps {
		if strings.HasPrefix(name, ".rodata") {
			continue // configuration, which cilium/ebpf names
		}
		if kernel := KernelName(name); len(kernel) > 15 {
			t.Errorf("map %s is %s in the kernel: %d bytes, want at most 15", name, kernel, len(kernel))
		}
	}
}

// TestPinNamesDoNotChange checks the names by which agents of other versions find pinned maps.
func TestPinNamesDoNotChange(t *testing.T) {
	want := map[string]string{
		SluiceMapPolicy: "mem", SluiceMapEndpoints: "ends", SluiceMapEpover: "far", SluiceMapAddrs: "names", SluiceMapCounters: "hits",
		SluiceMapGateways: "gateways", SluiceMapConns: "flows", SluiceMapRecent: "lately", SluiceMapActivity: "crowds", SluiceMapChanges: "changes",
		SluiceMapFrags: "fragments", SluiceMapEvents: "events", SluiceMapEventFilter: "listener", SluiceMapDrops: "reasons", SluiceMapShares: "shares",
		SluiceMapLimits: "limits", "mark": "mark", "owner": "owner", "link_7_to_pod": "link_7_to_pod",
	}
	for name, pin := range want {
		if got := PinName(name); got != pin {
			t.Errorf("map %s is pinned as %s, want %s", name, got, pin)
		}
	}
}

var spaces = regexp.MustCompile(`\s+`)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
