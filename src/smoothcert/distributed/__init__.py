"""Operations among several processes that work on one job."""
