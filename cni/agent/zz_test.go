package agent_test

import (
	"context"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	w, _ := joined(t)
	w.management("host1")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	_, err := w.lab.HTTPGet(ctx, "host1", "http://10.96.0.11:80")
	cancel()
	t.Log("before:", err)
	out, _ := w.lab.Exec(t.Context(), "host1", "conntrack", "-L")
	t.Log(out)
	w.service(2, "10.96.0.11", w.address("host1"))
	for range 4 {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		got, err := w.lab.HTTPGet(ctx, "host1", "http://10.96.0.11:80")
		cancel()
		t.Log("after:", got, err)
	}
	out, _ = w.lab.Exec(t.Context(), "host1", "conntrack", "-L")
	t.Log(out)
	out, _ = w.lab.Exec(t.Context(), "host1", "sh", "-c", "ovs-appctl -t "+w.lab.Dir+"/host1/ovs-vswitchd.*.ctl dpctl/dump-conntrack | grep 100.96")
	t.Log(out)
	out, _ = w.lab.Exec(t.Context(), "host1", "timeout", "4", "tcpdump", "-ni", "coe0", "-c", "30")
	t.Log(out)
}
