package embedded

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// spaceEvery is the interval at which the server looks at the space that is left.
const spaceEvery = 5 * time.Second

// keepSpace gives space back before the quota is used up, until ctx ends. Then etcd would take no
// writes any more, until an administrator came; this one has none.
func (s *Server) keepSpace(ctx context.Context) {
	tick := time.NewTicker(spaceEvery)
	defer tick.Stop()
	for {
		if err := s.giveBack(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("embedded etcd: space cannot be given back", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// giveBack removes the history, and the space that it took on disk, when half of the quota is
// used, and ends the alarm of a quota that was used up. Nothing needs the history: watches that lag
// read again. The alarm stays while the content itself takes most of the quota.
func (s *Server) giveBack(ctx context.Context) error {
	disk, quota := s.etcd.Server.Backend(), s.etcd.Config().QuotaBackendBytes
	if disk.Size() > quota/2 {
		if err := s.Compact(ctx); err != nil && !errors.Is(err, mvcc.ErrCompacted) {
			return err
		}
		if disk.Size()-disk.SizeInUse() > quota/4 {
			before := disk.Size()
			if err := disk.Defrag(); err != nil {
				return err
			}
			s.log.Warn("embedded etcd: gave space back", "before", before, "after", disk.Size(), "quota", quota)
		}
	}
	for _, alarm := range s.etcd.Server.Alarms() {
		if alarm.Alarm != etcdserverpb.AlarmType_NOSPACE || disk.Size() > quota*3/4 {
			continue
		}
		end := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_DEACTIVATE, MemberID: alarm.MemberID, Alarm: alarm.Alarm}
		if _, err := s.etcd.Server.Alarm(ctx, end); err != nil {
			return err
		}
		s.log.Warn("embedded etcd takes writes again", "size", disk.Size(), "quota", quota)
	}
	return nil
}
