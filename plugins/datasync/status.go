package datasync

import (
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// Status is a snapshot of the status of a Watcher.
type Status struct {
	Following bool      `json:"following"`      // a watch is running
	Since     time.Time `json:"since,omitzero"` // since when Following is as it is
	Revision  int64     `json:"revision"`       // of the store, as far as it was read
	// Changed is the revision at which the watch last delivered a changed or deleted object; 0 if
	// it has not yet.
	Changed int64 `json:"changed,omitzero"`
	Handed  int64 `json:"handed,omitzero"` // revision of the newest changes for the consumer
	// Newest is the revision of the newest change that is in force, of any key of the state; 0 if
	// that is not known.
	Newest int64 `json:"newest,omitzero"`
	Values
	// Incomplete explains why the store is not believed to hold the complete state of the cluster;
	// it is empty if the store is believed. The previous state stays in force meanwhile.
	Incomplete string `json:"incomplete,omitempty"`
	// Marker is the marker of the state in force, with the counts of that state; nil if there is
	// none. It must not be modified.
	Marker    *model.Marker `json:"marker,omitempty"`
	LastError string        `json:"last_error,omitzero"` // what ended the last watch or snapshot
	// Heard is when the store last responded, even if nothing has changed.
	Heard time.Time `json:"heard,omitzero"`
	// Saved is the time of the saved state while that is in force because the store has not
	// answered since the start.
	Saved time.Time `json:"saved,omitzero"`
	Snapshots
}

// Values counts the values of the store.
type Values struct {
	Objects   int    `json:"objects"`   // in force
	Problems  int    `json:"problems"`  // keys whose value in the store is not in force
	Reported  uint64 `json:"reported"`  // number of problems reported since the start
	Unchanged uint64 `json:"unchanged"` // writes that changed nothing
}

// Snapshots records when and why the complete state was read. Reasons are "start", "incomplete",
// "watch_failed", or the result of a method Reason() string of the watch's error, such as
// "compacted".
type Snapshots struct {
	LastResync time.Time `json:"last_resync,omitzero"` // when it was read last
	Reason     string    `json:"reason,omitzero"`      // why
	// Resyncs counts the snapshots by reason. It must not be modified.
	Resyncs map[string]int `json:"resyncs"`
}

// withOne returns the snapshots with one added.
func (r Snapshots) withOne(reason string, now time.Time) Snapshots {
	counts := map[string]int{reason: 1}
	for old, n := range r.Resyncs {
		counts[old] += n
	}
	return Snapshots{now, reason, counts}
}
