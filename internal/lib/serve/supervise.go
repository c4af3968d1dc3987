package serve

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Supervise notifies the service manager when the program is ready, while alive returns true as
// often as the unit's WatchdogSec requires, and when it stops because ctx ended. Without a service
// manager it only waits for ctx. See sd_notify(3).
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
				log.Error("the event loop does not respond; the service manager will restart this process", "within", every)
				continue
			}
			if err := notify(daemon.SdNotifyWatchdog); err != nil {
				log.Warn("service manager could not be notified", "error", err)
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
