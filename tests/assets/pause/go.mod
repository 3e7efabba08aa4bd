module stratum.ciq.com/assets/pause

go 1.26.0
