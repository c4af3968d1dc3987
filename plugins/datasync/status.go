package datasync

import (
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// Status says how well a Watcher follows the store. It is a value of one moment.
type Status struct {
	Following bool      `json:"following"`      // a watch is running
	Since     time.Time `json:"since,omitzero"` // since when Following is as it is
	Revision  int64     `json:"revision"`       // of the store, as far as it was read
	// Changed is the revision at which the watch last told of an object that changed or
	// went; 0 when it has not yet.
	Changed int64 `json:"changed,omitzero"`
	Handed  int64 `json:"handed,omitzero"` // revision of the newest changes for the consumer
	Values
	// Incomplete is why the store is not believed to hold the whole state of the cluster, empty
	// while it is. What was in force stays meanwhile.
	Incomplete string `json:"incomplete,omitempty"`
	// Marker is that of the state in force, with the counts of that state; nil when there is
	// none. It must not be changed.
	Marker    *model.Marker `json:"marker,omitempty"`
	LastError string        `json:"last_error,omitzero"` // what ended the last watch or snapshot
	// Heard is when the store said something last, be it that nothing has changed.
	Heard time.Time `json:"heard,omitzero"`
	// Saved is from when the state is that is in force, while it is the one of the file
	// because the store has not answered since the start.
	Saved time.Time `json:"saved,omitzero"`
	Snapshots
}

// Values counts the values of the store.
type Values struct {
	Objects   int    `json:"objects"`   // in force
	Problems  int    `json:"problems"`  // keys whose value in the store is not in force
	Reported  uint64 `json:"reported"`  // problems reported since the start
	Unchanged uint64 `json:"unchanged"` // writes that changed nothing
}

// Snapshots says when and why the whole state was read. Reasons are "start", "incomplete",
// "watch_failed", or what the error of the watch says of itself by a method Reason()
// string, such as "compacted".
type Snapshots struct {
	LastResync time.Time `json:"last_resync,omitzero"` // when it was read last
	Reason     string    `json:"reason,omitzero"`      // why
	// Resyncs is how often it was read for each reason. It must not be changed.
	Resyncs map[string]int `json:"resyncs"`
}

// withOne returns the snapshots with one more.
func (r Snapshots) withOne(reason string, now time.Time) Snapshots {
	counts := map[string]int{reason: 1}
	for old, n := range r.Resyncs {
		counts[old] += n
	}
	return Snapshots{now, reason, counts}
}
