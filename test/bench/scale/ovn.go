package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coe-bridge/coe-bridge/test/lab/nbrows"
)

// settleLimit bounds the time in which OVN does all its work.
const settleLimit = 25 * time.Minute

// awaitOVN waits until northd has translated everything that is in the northbound database now, and until the real hosts have it in
// their switches. It returns the times of both.
func (s *simulation) awaitOVN(ctx context.Context) (translated, installed time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	s.wanted++
	_, err = nbrows.Transact(ctx, s.lab.NB.Remote, map[string]any{
		"op": "update", "table": "NB_Global", "where": []any{}, "row": map[string]any{"nb_cfg": s.wanted},
	})
	if err != nil {
		return translated, installed, err
	}
	var global []struct {
		Has int `json:"sb_cfg"`
	}
	if err := s.poll(ctx, "northd", func() (bool, error) {
		err := s.read(ctx, s.lab.NB.Remote, nbrows.Northbound, "NB_Global", []string{"sb_cfg"}, &global)
		return err == nil && global[0].Has == s.wanted, err
	}); err != nil {
		return translated, installed, err
	}
	translated = time.Now()
	err = s.poll(ctx, "ovn-controller", func() (bool, error) {
		var all []struct {
			Name string
			Has  int `json:"nb_cfg"`
		}
		err := s.read(ctx, s.lab.SB.Remote, nbrows.Southbound, "Chassis_Private", []string{"name", "nb_cfg"}, &all)
		have := 0
		for _, one := range all {
			if s.lab.Host(one.Name) != nil && one.Has == s.wanted {
				have++
			}
		}
		return have == realHosts, err
	})
	return translated, time.Now(), err
}

// read reads columns of all rows of a table into a slice.
func (s *simulation) read(ctx context.Context, endpoint, database, table string, columns []string, rows any) error {
	selected := nbrows.All("select", table)
	selected["columns"] = columns
	results, err := nbrows.TransactIn(ctx, endpoint, database, selected)
	if err != nil {
		return err
	}
	var result struct{ Rows json.RawMessage }
	if err := json.Unmarshal(results[0], &result); err != nil {
		return fmt.Errorf("read %s: %w", table, err)
	}
	return json.Unmarshal(result.Rows, rows)
}

// count returns the number of rows of a table.
func (s *simulation) count(ctx context.Context, endpoint, database, table string) (int, error) {
	var rows []struct{}
	err := s.read(ctx, endpoint, database, table, []string{"_version"}, &rows)
	return len(rows), err
}

// pollEvery is the interval of looks into the databases.
const pollEvery = 100 * time.Millisecond

// poll looks until holds is true.
func (s *simulation) poll(ctx context.Context, what string, holds func() (bool, error)) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		reached, err := holds()
		if reached {
			return nil
		}
		if err := errors.Join(s.chassis.failed(), ctx.Err()); err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// flows returns the number of OpenFlow flows of a real host.
func (s *simulation) flows(ctx context.Context) (int, error) {
	out, err := s.lab.Hosts[0].Flows(ctx)
	return strings.Count(out, "cookie="), err
}
