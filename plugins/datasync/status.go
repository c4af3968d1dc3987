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
	Changed   int64  `json:"changed,omitzero"`
	Handed    int64  `json:"handed,omitzero"` // revision of the newest changes for the consumer
	Objects   int    `json:"objects"`         // in force
	Problems  int    `json:"problems"`        // keys whose value in the store is not in force
	Reported  uint64 `json:"reported"`        // problems reported since the start
	Unchanged uint64 `json:"unchanged"`       // writes that changed nothing
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
	// LastResync and Reason are when and why the last snapshot was read, Resyncs
	// how many there were for each reason. Reasons are "start", "incomplete",
	// "watch_failed", or what the error of the watch says of itself by a method
	// Reason() string, such as "compacted". The map must not be changed.
	LastResync time.Time      `json:"last_resync,omitzero"`
	Reason     string         `json:"reason,omitzero"`
	Resyncs    map[string]int `json:"resyncs"`
}
