package compile

// Words of a line, and bytes of a word.
const (
	LineWords = 16
	WordBytes = 4
)

// Line is what programs read of memory at once: a line of the cache.
type Line [LineWords]uint32

// A cell has its kind in the upper two bits. The rest is a value, or the number of a line.
const (
	kindLeaf  uint32 = 0
	kindSmall uint32 = 1 << 30 // words 4 to 15 of the line: 8 starts of 16 bits, and the XOR of each value with the one before
	kindBig   uint32 = 2 << 30 // 3 lines: 32 starts of 16 bits, 32 values
	kindNode  uint32 = 3 << 30 // 16 lines: 256 cells by the high or the low byte

	kindMask    = 3 << 30
	payloadMask = 1<<30 - 1

	smallRuns, bigRuns         = 8, 32
	bigLines, nodeLines        = 3, 16
	smallStart                 = 4 // word at which the starts of a small list are
	smallValue                 = 8 // word at which its values are
	startsPerLine              = 2 * LineWords
	unusedStart         uint16 = 0xffff // start of unused runs, whose values equal the last one
)

// nextNode marks a value of an address cell as the line of the next node; without it, the value is
// a class.
const nextNode uint32 = 1 << 29

// Allow is the bit of a verdict that permits. SlotMask masks the counter of the rule that decided.
// OwnNode marks a rule for traffic from the node itself. It applies only to packets that were
// created on the node, whatever other packets have an address of the node as source.
const (
	Allow    uint32 = 1 << 29
	OwnNode  uint32 = 1 << 28
	SlotMask uint32 = 1<<28 - 1
)

// Well-known counters.
const (
	SlotNone  = 0 // no rule matches, or there is no row
	SlotInfra = 1 // an address that may talk with every pod
)

// Words of the line of an IPv6 node. The 128 bits of the address are compared with nodeValue under
// the mask nodeMaskW. If they differ, the class is nodeMiss; else the cell gives the value for the
// 16-bit digit nodeDigit of the address, 0 being the first.
const (
	nodeMiss  = 0
	nodeCell  = 1
	nodeDigit = 2
	nodeValue = 4
	nodeMaskW = 8
)

// Words of a record, which has all that the program needs of an endpoint. The IPv4 addresses are in
// the next line, one word each, and the IPv6 addresses in the lines after that, 4 words each.
const (
	RecordID      = 0 // of the endpoint
	RecordFlags   = 1
	RecordRoot4   = 2 // line of the 65536 cells for the first half of an IPv4 address
	RecordRoot6   = 3 // index of the word that holds the line of the first IPv6 node
	RecordTable   = 4 // and 5: line of the page table of the list, by Direction
	RecordClasses = 6 // and 7: capacity of that table in classes
	RecordCount4  = 8 // addresses of the endpoint
	RecordCount6  = 9
	RecordSlot    = 10 // and 11: counter of the first rule of the list, by Direction; programs do not read it
	RecordPage    = 12 // and 13: line of the first page, by Direction, which has most classes

	recordAddr4 = 1 // lines from the record
	recordAddr6 = 2
	recordLines = 6

	// MaxAddresses is how many addresses of each family an endpoint can have.
	MaxAddresses = 16
)

// Flags of a record.
const (
	FlagToPod     uint32 = 1 << iota // traffic to the pod has a list
	FlagFromPod                      // traffic from the pod has a list
	FlagLearn                        // mid-stream TCP packets may create a tracked connection
	FlagKeep                         // tracked connections continue after changes of policy
	FlagPortsTo                      // rows are indexed by source port first, for traffic to the pod
	FlagPortsFrom                    // the same, for traffic from the pod
)

// Direction of traffic, as a pod sees it.
type Direction int

// The directions; they are indexes of RecordTable.
const (
	ToPod Direction = iota
	FromPod
)

// Places of a row.
const (
	placeTCP = iota
	placeUDP
	placeSCTP
	placeOther // by number of the protocol
	places
)

const (
	pageClasses = 64
	pageLines   = pageClasses / LineWords
	rootKeys    = 1 << 16
	rootLines   = rootKeys / LineWords
)

// Digits of the addresses of a family.
const (
	digits4 = 2
	digits6 = 8
)

func be32(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}
