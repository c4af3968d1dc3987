package serve

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Supervise tells the service manager that the program is ready, that it is alive as often as the
// unit's WatchdogSec asks for while alive says so, and that it stops, when ctx ends. Where no
// service manager started the program it waits for ctx. See sd_notify(3).
func Supervise(ctx context.Context, alive func() bool, log *slog.Logger) error {
	if err := notify(daemon.SdNotifyReady); err != nil {
		return err
	}
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("WATCHDOG_USEC: %w", err)
	}
	var tick <-chan time.Time
	if every > 0 {
		t := time.NewTicker(every / 3)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-tick:
			if !alive() {
				log.Error("not alive: the service manager will start the program again", "within", every)
				continue
			}
			if err := notify(daemon.SdNotifyWatchdog); err != nil {
				log.Warn("the service manager cannot be told", "error", err)
			}
		case <-ctx.Done():
			return notify(daemon.SdNotifyStopping)
		}
	}
}

func notify(what string) error {
	if _, err := daemon.SdNotify(false, what); err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	return nil
}
