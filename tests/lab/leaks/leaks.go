// Package leaks fails the tests of a package that leave goroutines running.
package leaks

import (
	"time"

	"go.uber.org/goleak"
)

// patience bounds how long goroutines may take to end. On a busy machine those of a library, which
// offers no way to wait for them, take longer than the half second that goleak grants.
const patience = time.Minute

// Main is goleak.VerifyTestMain with patience.
func Main(m goleak.TestingM, options ...goleak.Option) {
	goleak.VerifyTestMain(patient{m, options}, options...)
}

// patient are tests that end once their goroutines have, or after patience.
type patient struct {
	goleak.TestingM
	options []goleak.Option
}

func (p patient) Run() (code int) {
	code = p.TestingM.Run()
	for end := time.Now().Add(patience); code == 0 && goleak.Find(p.options...) != nil && time.Now().Before(end); {
	}
	return code
}
